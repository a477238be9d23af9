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
from services.scheduler.domain.pool.nodes import NODES_OF_AGENT_MAX
from services.scheduler.domain.pool.state import INITIAL, Pools
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


# --- several nodes of one agent ----------------------------------------------------------------


def joined(*node_ids: str) -> Pools:
    """Nodes that one agent has registered, each with a lease's worth of slots."""
    state = INITIAL
    for number, node_id in enumerate(node_ids):
        context = Context(
            at=1_000, key=POOL, tenant="", command_id=f"c{number}", seq=number, sender="node.k8s"
        )
        for event in decide(state, node(node_id, f"i-{number}"), context):
            assert not isinstance(event, Rejected), event
            state = evolve(state, event, context)
    return state


def of_agent(sender: str) -> Context:
    return Context(at=2_000, key=POOL, tenant="", command_id="c", seq=99, sender=sender)


def test_security_an_agent_speaks_for_the_nodes_of_its_flavors_and_no_others() -> None:
    state = joined("k8s:h100", "k8s:a100")
    leaves = LeaveNode(node_id="k8s:h100", incarnation="i-0")
    assert codes(decide(state, leaves, of_agent("node.k8s"))) == []
    for other in ("node.k8s2", "node.k", "node.h100"):
        assert codes(decide(state, leaves, of_agent(other))) == [errors.SENDER_REFUSED], other
    foreign = node("lab:h100", "i-9")
    assert codes(decide(state, foreign, of_agent("node.k8s"))) == [errors.SENDER_REFUSED]


@pytest.mark.parametrize("part", ["", "a:b", "a b", "ü", "x" * 64])
def test_security_the_part_of_a_nodes_name_that_its_agent_chooses_is_bounded(part: str) -> None:
    (refused,) = decide(INITIAL, node(f"k8s:{part}", "i-0"), of_agent("node.k8s"))
    assert isinstance(refused, Rejected)
    assert (refused.code, refused.reason.code) == (errors.MALFORMED, "node_id_malformed")


def test_security_an_agent_has_a_limited_number_of_nodes() -> None:
    state = joined(*(f"k8s:f{number}" for number in range(NODES_OF_AGENT_MAX)))
    (refused,) = decide(state, node("k8s:more", "i-99"), of_agent("node.k8s"))
    assert isinstance(refused, Rejected)
    assert refused.reason.code == "nodes_of_agent_at_most"
    again = decide(state, node("k8s:f0", "i-100"), of_agent("node.k8s"))
    assert codes(again) == [], "those that there are register again"
    assert codes(decide(state, node("lab:h100", "i-9"), of_agent("node.lab"))) == []


@pytest.mark.parametrize("named", ["k8s", "k8s:a100"])
def test_security_keys_of_an_agent_are_withdrawn_for_all_its_nodes(named: str) -> None:
    state = joined("k8s:h100", "k8s:a100")
    operator = of_agent("gateway")
    events = decide(state, WithdrawNodeKeys(node_id=named), operator)
    withdrawn = {event.node_id for event in events if isinstance(event, NodeKeysWithdrawn)}
    retired = {event.node_id for event in events if isinstance(event, NodeRetired)}
    assert withdrawn == {"k8s", "k8s:h100", "k8s:a100"}
    assert retired == {"k8s:h100", "k8s:a100"}
    for event in events:
        state = evolve(state, event, operator)
    for node_id in ("k8s:h100", "k8s:new"):
        refused = decide(state, node(node_id, "i-7"), of_agent("node.k8s"))
        assert codes(refused) == [errors.SENDER_REFUSED], node_id
        assert codes(decide(state, node(node_id, "i-7"), of_agent("node.k8s#2"))) == []
