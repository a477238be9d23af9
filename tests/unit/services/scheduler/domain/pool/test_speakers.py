"""Security, finding C2: a node speaks for itself alone, though it may send to the pool."""

import pytest
from msgspec.structs import replace

from schemas import errors
from schemas.envelope import Context, Message, Rejected
from schemas.node import (
    JoinNode,
    LeaveNode,
    NodeKeysWithdrawn,
    NoticeNode,
    ReportDeviceFaults,
    WarnNode,
    WithdrawNodeKeys,
)
from schemas.pool import (
    MemberFreed,
    NodeRetired,
    PlacementClosed,
    RegisterNode,
    ReportCheckpoint,
    RetireNode,
)
from schemas.streams import GLOBAL
from services.scheduler.domain.pool.decide import decide
from services.scheduler.domain.pool.evolve import evolve
from simulator.control_plane.samples import POOL, checkpoint, node
from tests.unit.services.scheduler.domain.pool.test_decide import (
    begun,
    exited,
    freed,
    running,
    token,
)

MARK = {"node_id": "a", "incarnation": "a-1"}
OF_A: tuple[Message, ...] = (
    node(),
    JoinNode(**MARK),
    LeaveNode(**MARK),
    NoticeNode(**MARK, left_ms=1_000),
    WarnNode(**MARK),
    ReportDeviceFaults(**MARK, faults=()),
    RetireNode(**MARK),
    begun(),
    ReportCheckpoint(token=token(), incarnation="a-1", checkpoint=checkpoint(1, 1, 0)),
    exited(),
    freed(),
)


def decided(command: Message, sender: str | None) -> tuple[Message, ...]:
    context = Context(at=10_000_000, key=POOL, tenant="", command_id="c", seq=9, sender=sender)
    return decide(running().state, command, context)  # type: ignore[arg-type]  # each is one of them


def codes(events: tuple[Message, ...]) -> list[str]:
    return [event.code for event in events if isinstance(event, Rejected)]


@pytest.mark.parametrize("command", OF_A, ids=lambda command: type(command).__name__)
def test_security_c2_a_node_that_speaks_for_another_is_refused(command: Message) -> None:
    (refused,) = decided(command, "node.b")
    assert isinstance(refused, Rejected)
    assert refused.code == errors.SENDER_REFUSED
    assert refused.reason.code == "sender_not_node"
    assert refused.reason.params == {"sender": "node.b", "node_id": "a"}
    assert errors.SENDER_REFUSED not in codes(decided(command, "node.a"))


@pytest.mark.parametrize("command", OF_A, ids=lambda command: type(command).__name__)
def test_what_is_not_checked_is_decided_as_before(command: Message) -> None:
    assert errors.SENDER_REFUSED not in codes(decided(command, None))


def test_security_c2_a_node_with_a_withdrawn_key_is_refused_until_it_has_another() -> None:
    context = Context(at=10_000_000, key=POOL, tenant="", command_id="c", seq=9)
    state = running().state
    events = decide(state, WithdrawNodeKeys(node_id="a"), context)
    assert isinstance(events[0], NodeKeysWithdrawn)
    kinds = {type(event) for event in events}
    assert {PlacementClosed, MemberFreed, NodeRetired} <= kinds, "its leases end at once"
    for event in events:
        state = evolve(state, event, context)
    assert decide(state, WithdrawNodeKeys(node_id="a"), context) == (), "it has no other key yet"
    for key, sender, refused in (
        (POOL, "node.a", True),
        (POOL, "node.a#2", False),
        (GLOBAL, "node.a", True),
    ):
        by = replace(context, key=key, sender=sender)
        codes_of = codes(decide(state, node("a", "a-2"), by))
        assert codes_of == ([errors.SENDER_REFUSED] if refused else []), (key, sender)
    assert codes(decide(state, node("b", "b-1"), replace(context, sender="node.b"))) == []


def test_a_node_registers_under_its_own_name() -> None:
    command = node("b", "b-1")
    assert isinstance(command, RegisterNode)
    assert codes(decided(command, "node.b")) == []
