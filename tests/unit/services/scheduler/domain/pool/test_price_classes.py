"""Spot nodes: who gets them, who is kept off them, and who gives them up in time."""

from typing import Any

import pytest
from msgspec.structs import replace

from schemas import errors
from schemas.envelope import Rejected, Tick
from schemas.node import CordonNode, NodeWarned, NoticeNode, SpotGivenUp, SpotReconsidered, WarnNode
from schemas.pool import LeaseGranted, PlacementQueued, RegisterNode
from schemas.training import LeaseHardware, NodeConstraints
from schemas.units import HOUR_MS
from services.scheduler.app import POOLS
from simulator.control_plane.samples import MINUTE, POOL, T0, describe, request
from simulator.control_plane.samples import node as register
from tests.ticks import next_tick
from tests.unit.services.scheduler.domain.pool.test_decide import begun, exited, freed
from tests.unit.services.scheduler.fold import Decider, of
from tunery.plan.spot import KEPT_OFF_MS, RESTART_MS

SPOT, NEVER = NodeConstraints(spot=True), NodeConstraints(spot=False)
LATE = NodeConstraints(spot=True, finish_by=T0)


def empty() -> Decider:
    """A pool without nodes that has the works of some jobs."""
    jobs = ("first", "j", "j0", "j1", "j2", "k")
    return Decider(POOLS, POOL, T0).accept(*(describe(job_id) for job_id in jobs))


def joins(name: str, **described: Any) -> RegisterNode:
    return RegisterNode(node=replace(register(name, f"{name}-1", 1).node, **described))


def nodes_of(events: Any) -> list[str]:
    """Nodes of the leases that are granted, in order."""
    grants = [event for event in events if isinstance(event, LeaseGranted)]
    return [member.node_id for grant in grants for member in grant.members]


def test_spot_nodes_come_first_for_those_that_allow_them_and_last_for_others() -> None:
    three = (joins("c"), joins("b", reserved=True), joins("a", spot=True))
    assert nodes_of(empty().accept(*three).when(request("j", constraints=SPOT))) == ["a"]
    assert nodes_of(empty().accept(*three).when(request("j"))) == ["b"], "it is paid for"
    decider = empty().accept(*three)
    placed = [nodes_of(decider.when(request(f"j{n}", constraints=NEVER))) for n in range(3)]
    assert placed == [["b"], ["c"], []]
    assert nodes_of(decider.when(request("k"))) == ["a"], "it said nothing of spot nodes"


def test_work_without_checkpoints_for_long_is_kept_off() -> None:
    decider = empty().accept(joins("a", spot=True), joins("b"))
    evaluation = request("j", role="eval", constraints=SPOT, p50_ms=HOUR_MS, work_id="e" * 64)
    queued = of(decider.when(evaluation), PlacementQueued)
    assert queued.spot is False, "an evaluation of an hour begins anew"


def test_a_job_does_not_wait_for_ever_for_other_nodes_where_there_are_none() -> None:
    decider = empty().accept(joins("a", spot=True), joins("b", memory_bytes=1))
    decided = decider.when(request("j", constraints=LATE))
    assert of(decided, PlacementQueued).spot is False
    assert nodes_of(decided) == ["a"], "b has no memory for it"


def test_what_is_kept_off_spot_nodes_gets_them_when_the_last_other_one_is_cordoned() -> None:
    decider = empty().accept(joins("a", spot=True), joins("b"), request("first"))
    assert nodes_of(decider.when(request("j", constraints=LATE))) == [], "b is taken, a is spot"
    assert nodes_of(decider.when(CordonNode(node_id="b"))) == ["a"]


def test_a_job_that_loses_two_spot_nodes_runs_on_others_for_a_while() -> None:
    decider = empty().accept(joins("a", spot=True), joins("b", spot=True), joins("c"))
    for attempt, name in ((1, "a"), (2, "b")):
        (granted_on,) = nodes_of(decider.when(request("j", attempt, constraints=SPOT)))
        assert granted_on == name
        decider.accept(begun(attempt, incarnation=f"{name}-1"))
        decider.accept(NoticeNode(node_id=name, incarnation=f"{name}-1", left_ms=2 * MINUTE))
        decider.accept(exited(attempt, incarnation=f"{name}-1"))
    decider.accept(joins("d", spot=True))
    assert nodes_of(decider.when(request("j", 3, constraints=SPOT))) == ["c"]
    decider.at += KEPT_OFF_MS
    assert of(decider.when(request("k", 1, constraints=SPOT)), LeaseGranted).lease.hardware


@pytest.mark.parametrize(("finish_by", "placed"), [(None, ["d"]), (T0 + KEPT_OFF_MS, [])])
def test_a_job_that_waits_beside_spot_nodes_may_have_them_again_after_four_hours(
    finish_by: int | None, placed: list[str]
) -> None:
    """The job was kept off spot nodes until its next attempt, which never came."""
    decider = empty().accept(joins("a", spot=True), joins("b", spot=True))
    for attempt, name in ((1, "a"), (2, "b")):
        decider.accept(request("j", attempt, constraints=SPOT))
        decider.accept(begun(attempt, incarnation=f"{name}-1"))
        decider.accept(NoticeNode(node_id=name, incarnation=f"{name}-1", left_ms=2 * MINUTE))
        decider.accept(exited(attempt, incarnation=f"{name}-1"))
    over = decider.at + KEPT_OFF_MS
    decider.accept(joins("c"), request("first", constraints=NEVER), joins("d", spot=True))
    asked = replace(SPOT, finish_by=finish_by)
    queued = of(decider.when(request("j", 3, constraints=asked)), PlacementQueued)
    assert (queued.spot, queued.spot_from) == (False, over)
    decider.at = over - 1
    assert not [each for each in decider.when(Tick()) if isinstance(each, SpotReconsidered)]
    decider.at = over
    due = next_tick(POOLS, decider.state)
    assert due is not None
    assert due[0] <= over
    decided = decider.when(Tick())
    assert of(decided, SpotReconsidered).spot is bool(placed)
    assert nodes_of(decided) == placed
    assert not decider.state[POOL].spot_from


def test_what_should_be_done_by_then_gives_up_spot_nodes_while_there_is_time() -> None:
    in_time = replace(SPOT, finish_by=T0 + 3 * HOUR_MS)
    decider = empty().accept(joins("a", spot=True), request("first", constraints=SPOT))
    queued = of(decider.when(request("j", constraints=in_time, p90_ms=HOUR_MS)), PlacementQueued)
    assert queued.spot is True
    assert queued.spot_until == T0 + 2 * HOUR_MS - 10 * MINUTE - RESTART_MS
    assert next_tick(POOLS, decider.state) is not None
    decider.at = queued.spot_until - 1
    assert not [each for each in decider.when(Tick()) if isinstance(each, SpotGivenUp)]
    decider.at = queued.spot_until
    assert of(decider.when(Tick()), SpotGivenUp).job_id == "j"
    assert not decider.state[POOL].spot_until


def test_a_node_that_may_soon_be_taken_away_is_the_last_resort() -> None:
    decider = empty().accept(joins("a", spot=True), joins("b", spot=True))
    decider.accept(request("first", constraints=SPOT), begun())
    warning = WarnNode(node_id="a", incarnation="a-1")
    assert [type(event) for event in decider.when(warning)] == [NodeWarned], "what runs goes on"
    assert decider.when(warning) == ()
    decider.accept(exited(), freed())
    assert nodes_of(decider.when(request("j", constraints=SPOT))) == ["b"]
    assert nodes_of(decider.when(request("k", constraints=SPOT))) == ["a"], "better than none"
    former = WarnNode(node_id="a", incarnation="a-0")
    assert of(decider.when(former), Rejected).code == errors.STALE_TOKEN


@pytest.mark.parametrize("slots", [3, 4])
@pytest.mark.parametrize("first", [("h1", True), ("h1", False), ("h2", False)])
@pytest.mark.parametrize("second", [("h1", False), ("h2", True), ("h1", True)])
def test_review2_m9_all_members_of_a_gang_have_the_price_of_its_lease(
    first: tuple[str, bool], second: tuple[str, bool], slots: int
) -> None:
    """So nodes of two models, and spot nodes beside others, never have a lease together."""
    decider, events = empty(), list[Any]()
    decider.accept(request("j", slots=slots, device="cuda"))
    for name, (model, spot) in (("a", first), ("b", second), ("c", first), ("d", second)):
        joined = joins(name, slots=2, device="cuda", accelerator=model, spot=spot)
        events += decider.when(joined)
    lease = of(tuple(events), LeaseGranted)
    assert len(lease.members) == 2
    nodes = decider.state[POOL].nodes
    for member in lease.members:
        described = nodes[member.node_id].description
        hardware = LeaseHardware(
            device="cuda", accelerator=described.accelerator, spot=described.spot
        )
        assert lease.lease.hardware == hardware
