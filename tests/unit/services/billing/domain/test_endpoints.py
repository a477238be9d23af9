"""Webhook endpoints: which ones get a delivery, and how an address is confirmed."""

from collections import Counter
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from schemas import errors
from schemas.account import (
    STANDARD_EVENT_TYPES,
    ChangeEndpoint,
    CreateEndpoint,
    DeleteEndpoint,
    Deliver,
    DeliveryDue,
    DeliveryEnded,
    DeliveryReport,
    EndDelivery,
    EndpointDeleted,
    Event,
)
from schemas.endpoints import (
    CONFIRMATION_REQUESTED,
    Confirmation,
    ConfirmEndpoint,
    EndpointChange,
    EndpointConfirmed,
)
from schemas.envelope import Context, Rejected
from schemas.reasons import refusing
from schemas.units import DAY_MS
from services.billing.domain.decide import decide
from services.billing.domain.endpoints import CONFIRM_WITHIN_MS
from services.billing.domain.evolve import evolve
from services.billing.domain.state import CONFIRMATIONS_MAX, ENDPOINTS_MAX, Accounts
from tests.unit.services.billing.domain.test_decide import (
    SEALED,
    after,
    announce,
    context,
    create_endpoint,
    create_tenant,
    refusal,
)

CODE = "c" * 64
CONFIRM = ConfirmEndpoint(endpoint_id="we_1", code_sha256=CODE)


def test_unknown_event_types_are_refused_and_the_known_ones_listed() -> None:
    state = after(create_tenant())
    (event,) = decide(state, create_endpoint("we_1", "job.exploded"), context())
    assert isinstance(event, Rejected)
    assert event.param == "event_types"
    assert event.reason == refusing("event_types_unknown", types="job.exploded")


def test_endpoints_are_limited() -> None:
    state = after(create_tenant(), *(create_endpoint(f"we_{i}") for i in range(ENDPOINTS_MAX)))
    assert refusal(decide(state, create_endpoint("we_x"), context())) == errors.ILLEGAL_STATE


@given(
    st.dictionaries(
        st.sampled_from([f"we_{i}" for i in range(6)]),
        st.sets(st.sampled_from(STANDARD_EVENT_TYPES), min_size=1),
    ),
    st.sampled_from(STANDARD_EVENT_TYPES),
)
def test_exactly_one_delivery_for_each_endpoint_that_subscribes(
    subscriptions: dict[str, set[str]], event_type: str
) -> None:
    created = (create_endpoint(name, *sorted(types)) for name, types in subscriptions.items())
    state = after(create_tenant(), *created)
    due = decide(state, announce(event_type=event_type), context())
    endpoints = Counter(event.endpoint_id for event in due if isinstance(event, DeliveryDue))
    wanted = {name for name, types in subscriptions.items() if event_type in types}
    assert endpoints == Counter(dict.fromkeys(wanted, 1))
    assert len({event.delivery_id for event in due if isinstance(event, DeliveryDue)}) == len(due)


def test_an_event_announced_twice_opens_one_delivery() -> None:
    state = after(create_tenant(), create_endpoint("we_1"), announce())
    assert decide(state, announce(), context()) == ()


def test_only_endpoints_that_exist_at_the_announcement_get_a_delivery() -> None:
    state = after(create_tenant(), announce(), create_endpoint("we_1"))
    assert not state.tenants["acme"].deliveries


def test_the_first_outcome_of_a_delivery_counts() -> None:
    state = after(create_tenant(), create_endpoint("we_1"), announce())
    (delivery_id,) = state.tenants["acme"].deliveries
    end = EndDelivery(
        report=DeliveryReport(delivery_id=delivery_id, outcome="delivered", attempts=1, status=200)
    )
    (ended,) = decide(state, end, context())
    assert isinstance(ended, DeliveryEnded)
    assert ended.endpoint_id == "we_1"
    assert decide(after(end, state=state), end, context()) == ()


def test_an_endpoint_that_answers_gone_is_deleted() -> None:
    state = after(create_tenant(), create_endpoint("we_1"), announce())
    (delivery_id,) = state.tenants["acme"].deliveries
    gone = EndDelivery(
        report=DeliveryReport(delivery_id=delivery_id, outcome="gone", attempts=1, status=410)
    )
    assert EndpointDeleted(endpoint_id="we_1") in decide(state, gone, context())
    state = after(gone, state=state)
    assert not state.tenants["acme"].endpoints
    assert refusal(decide(state, DeleteEndpoint(endpoint_id="we_1"), context())) == (
        errors.NOT_FOUND
    )


def create_address(endpoint_id: str = "we_1", delivery_id: str = "whd_code") -> CreateEndpoint:
    terms = create_endpoint(endpoint_id).terms
    confirmation = Confirmation(code_sha256=CODE, delivery_id=delivery_id)
    return CreateEndpoint(terms=replace(terms, confirmation=confirmation))


def mails(events: tuple[Event, ...]) -> list[tuple[str, str]]:
    return [
        (event.delivery_id, event.event.event_type)
        for event in events
        if isinstance(event, DeliveryDue)
    ]


def at(moment: int) -> Context:
    return replace(context(), at=moment, command_id=str(UUID(int=2)))


def confirmed() -> Accounts:
    return after(create_tenant(), create_address(), CONFIRM)


def test_an_address_gets_a_code_and_nothing_else_until_it_is_confirmed() -> None:
    created = decide(after(create_tenant()), create_address(), context())
    assert mails(created) == [("whd_code", CONFIRMATION_REQUESTED)]
    state = after(create_tenant(), create_address())
    assert decide(state, announce(), context()) == ()
    test = Deliver(endpoint_id="we_1", delivery_id="whd_2", event=announce().event, once=True)
    assert refusal(decide(state, test, context())) == errors.ILLEGAL_STATE
    assert decide(state, CONFIRM, context()) == (EndpointConfirmed(endpoint_id="we_1"),)
    assert len(mails(decide(confirmed(), announce(), context()))) == 1
    assert len(mails(decide(confirmed(), test, context()))) == 1
    assert decide(confirmed(), CONFIRM, context()) == ()


def test_a_wrong_or_late_code_confirms_nothing() -> None:
    state = after(create_tenant(), create_address())
    wrong = replace(CONFIRM, code_sha256="d" * 64)
    assert refusal(decide(state, wrong, context())) == errors.MALFORMED
    assert refusal(decide(confirmed(), wrong, context())) == errors.MALFORMED
    late = at(1 + CONFIRM_WITHIN_MS)
    assert refusal(decide(state, CONFIRM, late)) == errors.ILLEGAL_STATE
    assert len(decide(state, CONFIRM, at(CONFIRM_WITHIN_MS))) == 1
    plain = after(create_tenant(), create_endpoint("we_1"))
    assert refusal(decide(plain, CONFIRM, context())) == errors.MALFORMED


def test_a_new_address_is_confirmed_anew_and_a_new_name_is_not() -> None:
    renamed = ChangeEndpoint(endpoint_id="we_1", change=EndpointChange(name=SEALED))
    assert mails(decide(after(renamed, state=confirmed()), announce(), context()))
    confirmation = Confirmation(code_sha256="e" * 64, delivery_id="whd_new")
    change = EndpointChange(url=SEALED, confirmation=confirmation)
    moved = ChangeEndpoint(endpoint_id="we_1", change=change)
    assert mails(decide(confirmed(), moved, context())) == [("whd_new", CONFIRMATION_REQUESTED)]
    state = after(moved, state=confirmed())
    assert decide(state, announce(), context()) == ()
    assert refusal(decide(state, CONFIRM, context())) == errors.MALFORMED
    to_url = ChangeEndpoint(endpoint_id="we_1", change=EndpointChange(url=SEALED))
    assert mails(decide(after(to_url, state=state), announce(), context()))


def test_a_tenant_has_a_limited_number_of_codes_mailed_within_a_day() -> None:
    state = after(create_tenant())
    for number in range(CONFIRMATIONS_MAX):
        name = f"we_{number}"
        state = after(
            create_address(name, f"whd_{number}"), DeleteEndpoint(endpoint_id=name), state=state
        )
    full = decide(state, create_address("we_x"), at(DAY_MS))
    assert refusal(full) == errors.ILLEGAL_STATE
    assert isinstance(full[0], Rejected)
    assert full[0].reason == refusing("confirmations_at_most", limit=CONFIRMATIONS_MAX)
    assert len(decide(state, create_endpoint("we_x"), at(DAY_MS))) == 1
    tomorrow = decide(state, create_address("we_x"), at(1 + DAY_MS))
    assert len(mails(tomorrow)) == 1
    for event in tomorrow:
        state = evolve(state, event, at(1 + DAY_MS))
    assert state.tenants["acme"].codes_mailed == (1 + DAY_MS,)
