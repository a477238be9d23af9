"""`account`: given events, when a command, then events."""

from uuid import UUID

import pytest
from msgspec.structs import replace

from schemas import errors
from schemas.account import (
    STANDARD_EVENT_TYPES,
    Announce,
    Command,
    CreateEndpoint,
    CreateKey,
    CreateTenant,
    Event,
    ImportPrices,
    KeyRevoked,
    KeyRotated,
    Limits,
    PlanSet,
    PlanTerms,
    PricesImported,
    RevokeKey,
    RotateKey,
    SetPlan,
    TenantCreated,
    WebhookEvent,
)
from schemas.answers import CountAnswers
from schemas.billing import PriceBook
from schemas.endpoints import EndpointTerms
from schemas.envelope import Context, Rejected
from schemas.integrations import (
    RemoveTrackingServer,
    SetTrackingServer,
    TrackingServer,
    TrackingServerRemoved,
    TrackingServerSet,
)
from schemas.keys import KeyRotation, KeyTerms
from schemas.node import WithdrawNodeKeys
from schemas.sealed import Sealed
from schemas.streams import GLOBAL
from services.billing.domain.decide import decide
from services.billing.domain.evolve import evolve
from services.billing.domain.state import INITIAL, KEYS_MAX, Accounts
from services.gateway.refusals import REFUSALS

SEALED = Sealed(key_id="k", nonce=b"n", ciphertext=b"c")
LIMITS = Limits(soft_gpu_ms=10, hard_gpu_ms=20, concurrency=2)
SUCCEEDED, FAILED, CANCELLED = STANDARD_EVENT_TYPES


def context(tenant: str = "acme") -> Context:
    return Context(at=1, key=tenant, tenant=tenant, command_id=str(UUID(int=1)), seq=1)


def after(*commands: Command, tenant: str = "acme", state: Accounts = INITIAL) -> Accounts:
    for command in commands:
        for event in decide(state, command, context(tenant)):
            state = evolve(state, event, context(tenant))
    return state


def refusal(events: tuple[Event, ...]) -> str:
    (event,) = events
    assert isinstance(event, Rejected)
    assert event.reason.code in REFUSALS
    return event.code


def create_tenant() -> CreateTenant:
    return CreateTenant(
        name=SEALED, terms=PlanTerms(lane="standard", limits=LIMITS, price_version="2026-11")
    )


def create_key(
    key_id: str = "key_1", scopes: tuple[str, ...] = ("all",), sha256: str = "a" * 64
) -> CreateKey:
    terms = KeyTerms(key_id=key_id, name=SEALED, sha256=sha256, hint="…1", scopes=scopes)
    return CreateKey(terms=terms)


def create_endpoint(endpoint_id: str, *types: str) -> CreateEndpoint:
    return CreateEndpoint(
        terms=EndpointTerms(
            endpoint_id=endpoint_id,
            name=SEALED,
            url=SEALED,
            event_types=types or STANDARD_EVENT_TYPES,
        )
    )


def announce(event_id: str = "evt_1", event_type: str = SUCCEEDED) -> Announce:
    return Announce(
        event=WebhookEvent(
            event_id=event_id, event_type=event_type, object_id="ftjob-1", created_at=5
        )
    )


def test_a_tenant_is_created_once() -> None:
    assert isinstance(decide(INITIAL, create_tenant(), context())[0], TenantCreated)
    state = after(create_tenant())
    assert refusal(decide(state, create_tenant(), context())) == errors.ALREADY_EXISTS


def test_nothing_is_done_for_an_unknown_tenant() -> None:
    assert refusal(decide(INITIAL, create_key(), context())) == errors.NOT_FOUND
    assert decide(INITIAL, announce(), context()) == ()


def test_limits_must_make_sense() -> None:
    for limits in (
        Limits(soft_gpu_ms=3, hard_gpu_ms=2, concurrency=1),
        Limits(soft_gpu_ms=-1, hard_gpu_ms=2, concurrency=1),
        Limits(soft_gpu_ms=1, hard_gpu_ms=2, concurrency=0),
    ):
        command = SetPlan(terms=PlanTerms(lane="free", limits=limits, price_version="2026-11"))
        assert refusal(decide(after(create_tenant()), command, context())) == errors.MALFORMED


def test_a_plan_is_set_only_when_it_differs() -> None:
    state = after(create_tenant())
    same = SetPlan(terms=PlanTerms(lane="standard", limits=LIMITS, price_version="2026-11"))
    other = SetPlan(terms=PlanTerms(lane="premium", limits=LIMITS, price_version="2026-11"))
    assert decide(state, same, context()) == ()
    assert isinstance(decide(state, other, context())[0], PlanSet)
    assert after(other, state=state).tenants["acme"].terms.lane == "premium"


def test_a_key_is_revoked_once_and_its_id_is_never_used_again() -> None:
    state = after(create_tenant(), create_key())
    assert refusal(decide(state, create_key(), context())) == errors.ALREADY_EXISTS
    revoked = after(RevokeKey(key_id="key_1"), state=state)
    assert decide(revoked, RevokeKey(key_id="key_1"), context()) == ()
    assert refusal(decide(revoked, create_key(), context())) == errors.ALREADY_EXISTS
    assert refusal(decide(state, RevokeKey(key_id="key_2"), context())) == errors.NOT_FOUND


def test_a_key_is_rotated_by_its_newest_secret_or_by_operators() -> None:
    state = after(create_tenant(), create_key())

    def turn(new: str, secret: str | None) -> RotateKey:
        return RotateKey(
            key_id="key_1",
            secret=secret,
            rotation=KeyRotation(sha256=new * 64, hint="…2", previous_until=9),
        )

    state = after(turn("b", "a" * 64), state=state)
    assert refusal(decide(state, turn("c", "a" * 64), context())) == errors.FORBIDDEN
    (event,) = decide(state, turn("c", None), context())
    assert isinstance(event, KeyRotated)
    assert event.previous_sha256 == "b" * 64


@pytest.mark.parametrize(
    ("asking", "scopes", "target", "allowed"),
    [
        ("key_1", ("write",), ("read",), False),
        ("key_1", ("keys.write",), ("read",), True),
        ("key_1", ("keys.write",), ("admin",), False),
        ("key_2", ("read",), ("read",), True),
        ("operator", ("read",), ("admin",), True),
    ],
)
def test_who_may_revoke_a_key(
    asking: str, scopes: tuple[str, ...], target: tuple[str, ...], allowed: bool
) -> None:
    own_key = create_key(scopes=scopes)
    other = create_key("key_2", target, "b" * 64)
    state = after(create_tenant(), own_key, other)
    secret = {"key_1": "a" * 64, "key_2": "b" * 64}.get(asking)
    (event,) = decide(state, RevokeKey(key_id="key_2", secret=secret), context())
    assert isinstance(event, KeyRevoked) == allowed


def test_a_revoked_key_cannot_revoke_keys() -> None:
    keeper = create_key(scopes=("keys.write",))
    other = create_key("key_2", sha256="b" * 64)
    state = after(create_tenant(), keeper, other, RevokeKey(key_id="key_1"))
    late = RevokeKey(key_id="key_2", secret="a" * 64)
    assert refusal(decide(state, late, context())) == errors.FORBIDDEN


def test_sched_c15_keys_that_have_expired_or_are_revoked_do_not_count() -> None:
    """Finding C15: a hundred expired keys blocked every new one."""
    keys = [create_key(f"key_{number}") for number in range(KEYS_MAX)]
    expiring = [replace(key, terms=replace(key.terms, expires_at=1)) for key in keys]
    newest = create_key("key_newest")
    assert refusal(decide(after(create_tenant(), *keys), newest, context())) == (
        errors.ILLEGAL_STATE
    )
    assert names_of(decide(after(create_tenant(), *expiring), newest, context())) == ["KeyCreated"]


def names_of(events: tuple[Event, ...]) -> list[str]:
    return [type(event).__name__ for event in events]


def test_tenants_do_not_see_each_other() -> None:
    state = after(create_tenant(), create_endpoint("we_1"))
    state = after(create_tenant(), tenant="other", state=state)
    assert decide(state, announce(), context("other")) == ()
    assert decide(state, announce(), context("acme")) != ()


BOOK = PriceBook(
    version="2026-11",
    currency="EUR",
    gpu_hour_micro={"standard": 2_400_000},
    token_micro_per_million=0,
    effective_from="2026-11-01",
)


def prices(book: PriceBook = BOOK) -> ImportPrices:
    return ImportPrices(book=book, sha256="a" * 64)


def test_money_b3_the_content_of_a_version_never_changes() -> None:
    everywhere = Context(at=1, key=GLOBAL, tenant=GLOBAL, command_id="c", seq=1)
    (imported,) = decide(INITIAL, prices(), everywhere)
    assert isinstance(imported, PricesImported)
    state = evolve(INITIAL, imported, everywhere)
    assert dict(state.books) == {BOOK.version: BOOK}
    assert decide(state, prices(), everywhere) == ()
    edited = decide(
        state, prices(replace(BOOK, gpu_hour_micro={"standard": 9_900_000})), everywhere
    )
    assert isinstance(edited[0], Rejected)
    assert edited[0].reason.code == "prices_changed_content"


def test_money_b3_books_are_of_everybody() -> None:
    assert refusal(decide(after(create_tenant()), prices(), context())) == errors.MALFORMED


def test_security_c2_answers_that_a_withdrawn_key_counts_are_refused() -> None:
    everywhere = Context(at=1, key=GLOBAL, tenant=GLOBAL, command_id="c", seq=1)
    state: Accounts = INITIAL
    for number, events in ((1, 1), (1, 0)):
        withdrawn = decide(state, WithdrawNodeKeys(node_id="a", number=number), everywhere)
        assert len(withdrawn) == events
        for event in withdrawn:
            state = evolve(state, event, everywhere)
    for sender, refused in (("node.a", 1), ("node.a#2", 0), ("node.b", 0), ("engine", 0)):
        context = replace(everywhere, key="acme", tenant="acme", sender=sender)
        decided = decide(state, CountAnswers(uses=()), context)
        codes = [event.code for event in decided if isinstance(event, Rejected)]
        assert codes == [errors.SENDER_REFUSED] * refused, sender


def test_a_tracking_server_is_set_and_removed_and_changes_no_other_decision() -> None:
    state = after(create_tenant())
    setting = SetTrackingServer(server=TrackingServer(url=SEALED))
    (event,) = decide(state, setting, context())
    assert event == TrackingServerSet(server=setting.server)
    assert decide(state, RemoveTrackingServer(), context()) == (TrackingServerRemoved(),)
    assert after(setting, RemoveTrackingServer(), state=state) == state
    assert refusal(decide(INITIAL, setting, context())) == errors.NOT_FOUND
