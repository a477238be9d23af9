"""Given events of `account`, then the tenants as the decider knows them."""

from schemas.account import (
    DeliveryEnded,
    DeliveryReport,
    EndpointChanged,
    EndpointDeleted,
    EndpointRotated,
    Event,
    InvoiceClosed,
    KeyCreated,
    KeyRevoked,
    KeyRotated,
    PeriodEnded,
    PlanSet,
    PlanTerms,
    TenantCreated,
)
from schemas.billing import Statement
from schemas.endpoints import EndpointChange
from schemas.envelope import Context, Reason, Rejected
from schemas.keys import KeyRotation, KeyTerms
from services.billing.domain.evolve import evolve
from services.billing.domain.state import INITIAL, Accounts, AccountState
from tests.unit.services.account_samples import DUE, ENDPOINT, OTHER, SEALED
from tests.unit.services.billing.domain.test_decide import LIMITS
from tunery.billing.periods import CLOSE_AFTER_MS, period

NOVEMBER = period("2026-11")
TENANT = TenantCreated(
    name=SEALED, terms=PlanTerms(lane="free", limits=LIMITS, price_version="2026-11")
)
KEY = KeyCreated(
    terms=KeyTerms(
        key_id="key-1", name=SEALED, sha256="ab" * 32, hint="…1", scopes=("read",), expires_at=None
    )
)


def after(*events: Event, tenant: str = "acme", state: Accounts = INITIAL) -> Accounts:
    at = NOVEMBER.end_ms - 1
    for number, event in enumerate(events, 1):
        context = Context(at=at, key=tenant, tenant=tenant, command_id="c", seq=number)
        state = evolve(state, event, context)
    return state


def account(*events: Event) -> AccountState:
    """The tenant acme after these events."""
    return after(TENANT, *events).tenants["acme"]


def test_a_tenants_first_month_is_the_one_it_was_created_in() -> None:
    created = account()
    assert (created.period, created.closes_at) == ("2026-11", NOVEMBER.end_ms + CLOSE_AFTER_MS)


def test_a_closed_month_is_followed_by_the_next() -> None:
    assert account(PeriodEnded(period="2026-11", soft_gpu_ms=10, before=None)).closes_at is None
    statement = Statement(
        period="2026-12", cut=(), currency="EUR", soft_gpu_ms=10, gpu_ms=0, amount_micro=0
    )
    closed = account(InvoiceClosed(statement=statement))
    assert (closed.period, closed.closed) == ("2027-01", statement)
    assert closed.closes_at == period("2027-01").end_ms + CLOSE_AFTER_MS


def test_events_of_an_unknown_tenant_and_refusals_change_nothing() -> None:
    assert after(KEY, ENDPOINT, DUE) == INITIAL
    assert after(Rejected(code="not_found", reason=Reason(code="key_missing"))) == INITIAL


def test_a_tenants_events_leave_the_others_alone() -> None:
    state = after(TENANT, KEY)
    both = after(
        TENANT,
        PlanSet(terms=PlanTerms(lane="premium", limits=LIMITS, price_version="2027")),
        tenant="other",
        state=state,
    )
    assert both.tenants["acme"] == state.tenants["acme"]
    assert (both.tenants["other"].terms.lane, len(both.tenants["other"].keys)) == ("premium", 0)


def test_a_rotated_key_keeps_its_scopes_and_a_revoked_one_stays_known() -> None:
    rotated = KeyRotated(
        key_id="key-1",
        previous_sha256="ab" * 32,
        rotation=KeyRotation(sha256="cd" * 32, hint="…2", previous_until=9),
    )
    key = account(KEY, rotated).keys["key-1"]
    assert (key.sha256, key.scopes, key.revoked) == ("cd" * 32, ("read",), False)
    revoked = account(KEY, KeyRevoked(key_id="key-1", sha256="ab" * 32)).keys["key-1"]
    assert (revoked.scopes, revoked.revoked) == (("read",), True)


def test_an_endpoint_keeps_what_a_change_leaves_out() -> None:
    changed = EndpointChanged(
        endpoint_id="we-1", change=EndpointChange(name=None, url=OTHER, event_types=None)
    )
    rotated = EndpointRotated(endpoint_id="we-1", secret_version=2, previous_until=9)
    endpoint = account(ENDPOINT, changed, rotated).endpoints["we-1"]
    assert (endpoint.terms.url, endpoint.terms.event_types) == (OTHER, ("a",))
    assert (endpoint.terms.secret_version, endpoint.previous_until) == (2, 9)


def test_changes_of_an_endpoint_that_is_gone_are_ignored() -> None:
    gone = EndpointDeleted(endpoint_id="we-1")
    changed = EndpointChanged(
        endpoint_id="we-1", change=EndpointChange(name=None, url=OTHER, event_types=None)
    )
    assert account(ENDPOINT, gone, changed, gone) == account()


def test_a_delivery_is_open_until_its_first_end() -> None:
    ended = DeliveryEnded(
        endpoint_id="we-1",
        report=DeliveryReport(delivery_id="wd-1", outcome="delivered", attempts=1, status=200),
    )
    assert dict(account(DUE).deliveries) == {"wd-1": "we-1"}
    assert account(DUE, ended) == account(DUE, ended, ended) == account()
