"""The evaluation of a job goes on in the slots of its training."""

from typing import Any, Final

import pytest
from msgspec.structs import replace

from schemas.envelope import Message
from schemas.node import CordonNode, DrainNode, LeaveNode, NodeSeen, NoticeNode
from schemas.pool import (
    ConfirmFreed,
    ForgetWork,
    LeaseGranted,
    ObserveNodes,
    ReportExit,
    ReportStarted,
    RetireNode,
    Token,
)
from schemas.training import AttemptStart
from services.scheduler.app import POOLS
from services.scheduler.domain.pool.succession import KEPT_MS
from simulator.control_plane.samples import MINUTE, POOL, T0, TRAINED, describe, node, request
from tests.unit.services.scheduler.fold import Decider

OWN, YOUNGER = "ftjob-1", "ftjob-2"


def trained(
    slots: int = 1, *, others: int = 1, waits: tuple[Any, ...] = (), outcome: Any = "succeeded"
) -> Decider:
    """A node of `slots`, all of which have just trained `ftjob-1`, while others wait."""
    jobs = (OWN, *(f"ftjob-{number}" for number in range(2, 2 + others)))
    decider = Decider(POOLS, POOL, T0).accept(*(describe(job_id) for job_id in jobs))
    decider.accept(node(slots=slots), request(OWN, slots=slots))
    start = AttemptStart(loaded=None, loaded_step=0, skipped=(), total_steps=40)
    decider.accept(ReportStarted(token=token(), incarnation="a-1", start=start), *waits)
    decider.at += 10 * MINUTE
    failure: dict[str, Any] = {"result": TRAINED} if outcome == "succeeded" else {"cause": "user"}
    return decider.accept(
        ReportExit(
            token=token(),
            incarnation="a-1",
            outcome=outcome,
            elapsed_ms=10 * MINUTE,
            **failure,
        )
    )


def token(lease: int = 1) -> Token:
    return Token(pool=POOL, lease=lease)


def freed() -> ConfirmFreed:
    return ConfirmFreed(token=token(), node_id="a", incarnation="a-1")


def evaluation(**changes: Any) -> Any:
    return request(OWN, attempt=2, role="eval", **changes)


def alive(decider: Decider) -> ObserveNodes:
    seen = NodeSeen(node_id="a", incarnation="a-1", last_seen=decider.at, silent=False)
    return ObserveNodes(seen=(seen,))


def granted(events: tuple[Any, ...]) -> list[tuple[str, str]]:
    return [
        (event.lease.job_id, event.lease.role)
        for event in events
        if isinstance(event, LeaseGranted)
    ]


@pytest.mark.parametrize("slots", [1, 2, 4])
@pytest.mark.parametrize("tenant", ["acme", "other"])
def test_first_hour2_u14_no_younger_training_takes_the_slots_before_the_evaluation(
    slots: int, tenant: str
) -> None:
    """A's training ended, B got its slot, and A's evaluation waited for B's training."""
    decider = trained(slots, waits=(request(YOUNGER, slots=slots, tenant=tenant),))
    assert granted(decider.when(freed())) == []
    assert granted(decider.when(evaluation())) == [(OWN, "eval")]
    assert not decider.state[POOL].kept


@pytest.mark.parametrize("tenant", ["acme", "other"])
def test_first_hour2_u14_an_evaluation_asked_for_before_the_slots_are_free_gets_them(
    tenant: str,
) -> None:
    decider = trained(waits=(request(YOUNGER, tenant=tenant),))
    assert granted(decider.when(evaluation())) == []
    assert granted(decider.when(freed())) == [(OWN, "eval")]


def test_first_hour2_u14_two_trainings_that_end_together_both_go_on() -> None:
    decider = Decider(POOLS, POOL, T0)
    decider.accept(*(describe(f"ftjob-{number}") for number in range(1, 5)))
    decider.accept(node(slots=2), *(request(f"ftjob-{number}") for number in range(1, 5)))
    start = AttemptStart(loaded=None, loaded_step=0, skipped=(), total_steps=40)
    for lease in (1, 2):
        decider.accept(ReportStarted(token=token(lease), incarnation="a-1", start=start))
    decider.at += MINUTE
    for lease in (1, 2):
        ended: dict[str, Any] = {"outcome": "succeeded", "elapsed_ms": MINUTE, "result": TRAINED}
        exited = ReportExit(token=token(lease), incarnation="a-1", **ended)
        confirmed = ConfirmFreed(token=token(lease), node_id="a", incarnation="a-1")
        decider.accept(exited, confirmed)
    assert granted(decider.when(request("ftjob-2", attempt=2, role="eval"))) == [
        ("ftjob-2", "eval")
    ]
    assert granted(decider.when(evaluation())) == [(OWN, "eval")]


def test_first_hour2_u14_an_evaluation_leaves_what_it_does_not_need() -> None:
    decider = trained(4, waits=(request(YOUNGER, slots=3),))
    assert granted(decider.when(freed())) == []
    assert granted(decider.when(evaluation(slots=1))) == [(OWN, "eval"), (YOUNGER, "train")]


def test_first_hour2_u14_an_evaluation_that_needs_more_keeps_nothing() -> None:
    decider = trained(1, waits=(request(YOUNGER),)).accept(freed())
    assert (YOUNGER, "train") in granted(decider.when(evaluation(slots=2)))


def test_first_hour2_u14_an_earlier_lane_goes_first() -> None:
    decider = trained(waits=(request(YOUNGER, lane="premium"),))
    assert granted(decider.when(freed())) == [(YOUNGER, "train")]


def test_first_hour2_u14_a_job_of_an_earlier_lane_that_comes_just_then_waits() -> None:
    """For half a minute at most: until it is queued, when it may be preempted as any other."""
    decider = trained().accept(freed())
    assert granted(decider.when(request(YOUNGER, lane="premium"))) == []
    assert granted(decider.when(evaluation())) == [(OWN, "eval")]


def test_first_hour2_u14_nothing_is_kept_where_no_evaluation_follows() -> None:
    decider = trained(waits=(request(YOUNGER),), outcome="failed")
    assert granted(decider.when(freed())) == [(YOUNGER, "train")]


def test_first_hour2_u14_a_job_that_ends_instead_gives_the_slots_back_at_once() -> None:
    """The job is cancelled at that moment, or its budget is used up."""
    decider = trained(waits=(request(YOUNGER),)).accept(freed())
    assert granted(decider.when(ForgetWork(job_id=OWN))) == [(YOUNGER, "train")]


def test_first_hour2_u14_a_job_that_is_paused_just_then_keeps_them_for_half_a_minute() -> None:
    decider = trained(waits=(request(YOUNGER),)).accept(freed())
    decider.at += KEPT_MS - 1
    assert granted(decider.when(alive(decider))) == []
    decider.at += 1
    assert granted(decider.when(alive(decider))) == [(YOUNGER, "train")]
    assert granted(decider.when(evaluation())) == []


LOST: Final = NodeSeen(node_id="a", incarnation="a-1", last_seen=T0, silent=True)


@pytest.mark.parametrize(
    "between",
    [
        LeaveNode(node_id="a", incarnation="a-1"),
        NoticeNode(node_id="a", incarnation="a-1", left_ms=2 * MINUTE),
        RetireNode(node_id="a", incarnation="a-1"),
        CordonNode(node_id="a"),
        DrainNode(node_id="a"),
        ObserveNodes(seen=(LOST,)),
    ],
    ids=lambda between: type(between).__name__,
)
def test_first_hour2_u14_a_node_that_is_gone_just_then_keeps_nothing_from_other_nodes(
    between: Message,
) -> None:
    """The node leaves, gets a notice, is cordoned, drained or lost before the evaluation."""
    decider = trained(waits=(request(YOUNGER),)).accept(freed())
    decider.accept(between)
    assert granted(decider.when(node("b", "b-1", slots=2))) == [(YOUNGER, "train")]
    assert granted(decider.when(evaluation())) == [(OWN, "eval")]


def test_first_hour2_u14_kept_slots_survive_a_snapshot() -> None:
    """The planner's state is built anew from the pool, and says the same."""
    decider = trained(waits=(request(YOUNGER),)).accept(freed())
    decider.state = decider.state.set(POOL, replace(decider.state[POOL]))
    assert granted(decider.when(evaluation())) == [(OWN, "eval")]
