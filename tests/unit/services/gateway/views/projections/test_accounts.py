"""Given events of `account`, then rows of tenants, keys, endpoints and deliveries."""

from msgspec.structs import replace

from schemas.account import (
    DeliveryEnded,
    DeliveryReport,
    EndpointChanged,
    EndpointDeleted,
    EndpointRotated,
    KeyCreated,
    KeyRevoked,
    Limits,
    PlanSet,
    PlanTerms,
    TenantCreated,
)
from schemas.endpoints import Confirmation, EndpointChange, EndpointConfirmed
from schemas.integrations import TrackingServer, TrackingServerRemoved, TrackingServerSet
from services.gateway.views.tables.accounts import (
    DELIVERIES,
    ENDPOINTS,
    KEYS,
    TENANTS,
    TRACKING_SERVERS,
)
from tests.unit.services.account_samples import DUE, ENDPOINT, OTHER, SEALED
from tests.unit.services.gateway.accounts.test_auth import KEY, ROTATED
from tests.unit.services.gateway.view_rows import folded, only, rows

LIMITS = Limits(soft_gpu_ms=1, hard_gpu_ms=2, concurrency=3)
TENANT = TenantCreated(
    name=SEALED, terms=PlanTerms(lane="free", limits=LIMITS, price_version="2026-11")
)


def test_a_new_plan_changes_the_tenant_and_not_its_name() -> None:
    more = replace(LIMITS, concurrency=30)
    plan = PlanSet(terms=PlanTerms(lane="premium", limits=more, price_version="2027-01"))
    row = only(folded("account", TENANT, plan), TENANTS)
    assert (row.id, row.name, row.created_at) == ("acme", SEALED, 1_001_000)
    assert (row.plan, row.limits, row.price_version) == ("premium", more, "2027-01")


def test_a_rotated_key_keeps_its_scopes_and_the_secret_before() -> None:
    row = only(folded("account", KEY, ROTATED), KEYS)
    assert (row.sha256, row.hint) == (ROTATED.rotation.sha256, ROTATED.rotation.hint)
    assert row.previous_sha256 == KEY.terms.sha256
    assert row.previous_until == ROTATED.rotation.previous_until
    assert (row.scopes, row.sequence) == (KEY.terms.scopes, 1)


def test_a_revoked_key_stays_with_the_time_of_its_end() -> None:
    revoked = KeyRevoked(key_id="key-1", sha256=KEY.terms.sha256)
    assert only(folded("account", KEY, revoked), KEYS).revoked_at == 1_002_000


def test_a_changed_endpoint_keeps_what_was_left_out() -> None:
    changed = EndpointChanged(
        endpoint_id="we-1", change=EndpointChange(name=None, url=OTHER, event_types=None)
    )
    row = only(folded("account", ENDPOINT, changed), ENDPOINTS)
    assert (row.url, row.name, row.event_types) == (OTHER, SEALED, ("a",))
    assert (row.created_at, row.updated_at) == (1_001_000, 1_002_000)


def test_a_rotated_endpoint_has_its_newest_secret() -> None:
    rotated = EndpointRotated(endpoint_id="we-1", secret_version=2, previous_until=1)
    assert only(folded("account", ENDPOINT, rotated), ENDPOINTS).secret_version == 2


def test_an_address_is_to_be_confirmed_until_it_is_or_is_replaced() -> None:
    confirmation = Confirmation(code_sha256="c" * 64, delivery_id="wd-1")
    created = replace(ENDPOINT, terms=replace(ENDPOINT.terms, confirmation=confirmation))
    renamed = EndpointChanged(endpoint_id="we-1", change=EndpointChange(name=OTHER))
    again = replace(confirmation, delivery_id="wd-2")
    readdressed = EndpointChanged(
        endpoint_id="we-1", change=EndpointChange(url=OTHER, confirmation=again)
    )
    to_url = EndpointChanged(endpoint_id="we-1", change=EndpointChange(url=OTHER))
    confirmed = EndpointConfirmed(endpoint_id="we-1")
    for events, waiting in (
        ((ENDPOINT,), None),
        ((created, renamed), "wd-1"),
        ((created, confirmed), None),
        ((created, confirmed, readdressed), "wd-2"),
        ((created, to_url), None),
    ):
        assert only(folded("account", *events), ENDPOINTS).confirmation_id == waiting


def test_a_deleted_endpoint_leaves_its_deliveries() -> None:
    records = folded("account", ENDPOINT, DUE, EndpointDeleted(endpoint_id="we-1"))
    assert rows(records, ENDPOINTS) == []
    assert only(records, DELIVERIES).endpoint_id == "we-1"


def test_a_delivery_is_open_until_it_ends() -> None:
    row = only(folded("account", DUE), DELIVERIES)
    assert (row.due_at, row.event_at, row.ended_at) == (1_001_000, 900_000, None)
    ended = DeliveryEnded(
        endpoint_id="we-1",
        report=DeliveryReport(delivery_id="wd-1", outcome="gave_up", attempts=9, status=None),
    )
    row = only(folded("account", DUE, ended), DELIVERIES)
    assert (row.ended_at, row.outcome, row.attempts, row.status) == (1_002_000, "gave_up", 9, None)


def test_rows_of_two_tenants_with_one_key_id_stay_apart() -> None:
    records = folded("account", KEY, key="acme")
    other = KeyCreated(terms=replace(KEY.terms, hint="else"))
    records = folded("account", other, key="other", records=records)
    assert [(row.tenant, row.hint) for row in rows(records, KEYS)] == [
        ("acme", KEY.terms.hint),
        ("other", "else"),
    ]


def test_a_tracking_server_replaces_the_one_before_until_it_is_removed() -> None:
    first = TrackingServerSet(server=TrackingServer(url=OTHER, authorization=SEALED))
    second = TrackingServerSet(server=TrackingServer(url=SEALED))
    row = only(folded("account", first, second), TRACKING_SERVERS)
    assert (row.id, row.url, row.header) == ("mlflow", SEALED, None)
    assert rows(folded("account", first, TrackingServerRemoved()), TRACKING_SERVERS) == []
