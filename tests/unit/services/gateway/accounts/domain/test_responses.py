"""Tenants, keys, endpoints and deliveries as the API shows them."""

import pytest
from msgspec.structs import replace

from schemas.account import DeliveryEnded, DeliveryReport
from schemas.billing import InvoiceAdjustment
from schemas.sealed import Sealed
from services.gateway.accounts.domain.responses import (
    adjustment_response,
    delivery_response,
    endpoint_response,
    key_response,
    tenant_response,
)
from services.gateway.views.tables.accounts import DELIVERIES, ENDPOINTS, KEYS, TENANTS
from tests.unit.services.account_samples import DUE, ENDPOINT
from tests.unit.services.gateway.accounts.test_auth import KEY
from tests.unit.services.gateway.view_rows import folded, only
from tests.unit.services.gateway.views.projections.test_accounts import TENANT


def unseal(sealed: Sealed | None, _field: str) -> str | None:
    return None if sealed is None else "opened"


def test_a_tenant_has_its_name_opened_and_its_limits() -> None:
    shown = tenant_response(only(folded("account", TENANT), TENANTS), unseal)
    assert (shown.id, shown.name, shown.plan) == ("acme", "opened", "free")
    assert shown.model_dump()["created_at"] == 1_001, "in seconds, of milliseconds"
    assert shown.limits.model_dump() == {"soft_gpu_ms": 1, "hard_gpu_ms": 2, "concurrency": 3}


def test_an_erased_tenant_has_no_name() -> None:
    assert tenant_response(only(folded("account", TENANT), TENANTS), lambda *_: None).name is None


def test_a_key_is_shown_without_any_hash_of_its_secret() -> None:
    shown = key_response(only(folded("account", KEY), KEYS), unseal)
    assert KEY.terms.sha256 not in shown.model_dump_json()
    assert (shown.hint, shown.scopes, shown.models) == ("cret", ["jobs.read"], None)
    assert (shown.expires_at, shown.revoked_at, shown.previous_until) == (None, None, None)


def test_a_keys_times_are_seconds() -> None:
    row = replace(only(folded("account", KEY), KEYS), expires_at=2_999, models=("m",))
    shown = key_response(row, unseal).model_dump(mode="json")
    assert (shown["expires_at"], shown["models"]) == (2, ["m"])


def test_the_end_of_an_endpoints_secret_is_shown_without_its_padding() -> None:
    row = only(folded("account", ENDPOINT), ENDPOINTS)
    shown = endpoint_response(row, unseal, "whsec_abcdefgh==")
    assert shown.signing_secret_hint == "…efgh"
    assert shown.updated_at == shown.created_at == 1_001_000


def test_a_delivery_is_pending_until_it_ended() -> None:
    shown = delivery_response(only(folded("account", DUE), DELIVERIES))
    assert (shown.outcome, shown.ended_at, shown.status_code) == ("pending", None, None)
    assert (shown.event.id, shown.event.created_at, shown.event.data.id) == (
        "evt-1",
        900_000,
        "ftjob-1",
    )
    ended = DeliveryEnded(
        endpoint_id="we-1",
        report=DeliveryReport(delivery_id="wd-1", outcome="delivered", attempts=1, status=204),
    )
    shown = delivery_response(only(folded("account", DUE, ended), DELIVERIES))
    assert (shown.outcome, shown.ended_at, shown.status_code) == ("delivered", 1_002_000, 204)


@pytest.mark.parametrize(
    ("at", "period"), [(1_796_083_199_999, "2026-11"), (1_796_083_200_000, "2026-12")]
)
def test_an_adjustment_belongs_to_its_month_in_utc(at: int, period: str) -> None:
    adjusted = InvoiceAdjustment(reference="r", amount_micro=-5, currency="EUR", reason="goodwill")
    shown = adjustment_response("acme", adjusted, at)
    assert (shown.tenant, shown.period, shown.amount_micro) == ("acme", period, -5)
