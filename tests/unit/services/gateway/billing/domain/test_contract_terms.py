"""Billing terms: what a request sends is what the response shows, with the tenant's currency."""

from schemas.billing import BillingTerms
from services.gateway.billing.domain.contract_terms import (
    BillingTermsRequest,
    billing_terms,
    billing_terms_response,
)
from tests.unit.services.gateway.billing.test_contract_routes import TERMS


def test_terms_are_shown_as_they_were_sent() -> None:
    terms = billing_terms(BillingTermsRequest.model_validate(TERMS), None, "USD")
    changes = {"2026-11": BillingTerms(), "2026-12": terms, "2027-02": BillingTerms()}
    shown = billing_terms_response("acme", changes, "2027-01", "ACME Inc.").model_dump()
    months = {"from_month": "2026-12", "next_from_month": "2027-02"}
    assert shown == {"object": "tenant.billing_terms", "tenant": "acme", **months, **TERMS}
    before = billing_terms_response("acme", changes, "2026-10", None)
    assert (before.from_month, before.next_from_month, before.due_days) == (None, "2026-11", 30)


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
    changes = {"2026-11": billing_terms(surcharge, None, "USD")}
    shown = billing_terms_response("acme", changes, "2026-11", None).model_dump()
    assert shown["overage"] == {"surcharge_ppm": 1, "gpu_hour_micro": None, "currency": None}
