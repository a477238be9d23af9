"""Security, finding C2: a node speaks for itself alone, though it may send to the pool."""

import pytest

from schemas import errors
from schemas.envelope import Context, Message, Rejected
from schemas.node import JoinNode, LeaveNode, NoticeNode, ReportDeviceFaults, WarnNode
from schemas.pool import RegisterNode, ReportCheckpoint, RetireNode
from services.scheduler.domain.pool.decide import decide
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


def test_a_node_registers_under_its_own_name() -> None:
    command = node("b", "b-1")
    assert isinstance(command, RegisterNode)
    assert codes(decided(command, "node.b")) == []
