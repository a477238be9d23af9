"""Billing terms: what a request sends is what the response shows, with the tenant's currency."""

from services.gateway.billing.contract_terms import (
    BillingTermsRequest,
    billing_terms,
    billing_terms_response,
)
from tests.unit.services.gateway.billing.test_contract_routes import TERMS


def test_terms_are_shown_as_they_were_sent() -> None:
    terms = billing_terms(BillingTermsRequest.model_validate(TERMS), None, "USD")
    shown = billing_terms_response("acme", terms, "ACME Inc.").model_dump()
    assert shown == {"object": "tenant.billing_terms", "tenant": "acme", **TERMS}


def test_amounts_are_in_the_tenants_currency_unless_they_say_another() -> None:
    sent = {
        "overage": {"gpu_hour_micro": 1},
        "commitment": {"reference": "K-2", "amount_micro": 1},
    }
    terms = billing_terms(BillingTermsRequest.model_validate(sent), None, "USD")
    assert terms.overage is not None
    assert terms.commitment is not None
    assert terms.overage.currency == terms.commitment.currency == "USD"
    surcharge = BillingTermsRequest.model_validate({"overage": {"surcharge_ppm": 1}})
    shown = billing_terms_response("acme", billing_terms(surcharge, None, "USD"), None).model_dump()
    assert shown["overage"] == {"surcharge_ppm": 1, "gpu_hour_micro": None, "currency": None}
