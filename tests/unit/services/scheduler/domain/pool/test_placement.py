"""Placement: lanes in order, the fullest node that fits, and why other jobs wait."""

from collections.abc import Iterable

from immutables import Map
from msgspec.structs import replace

from schemas.account import Lane
from schemas.node import Beneficiary, Seat
from schemas.pool import Event, LeaseDraining, LeaseGranted, Placement, ReportCheckpoint, RetireNode
from schemas.reasons import ending
from schemas.training import NodeConstraints
from schemas.units import HOUR_MS
from services.scheduler.domain.pool.placement import plan_pool
from services.scheduler.domain.pool.state import Node, Pool, Waiting
from simulator.control_plane.samples import MINUTE, POOL, T0, checkpoint, request
from simulator.control_plane.samples import node as register
from tests.unit.services.scheduler.domain.pool.test_decide import (
    ALIVE,
    begun,
    end_of,
    exited,
    freed,
    token,
)
from tests.unit.services.scheduler.domain.pool.test_decide import pool as empty
from tests.unit.services.scheduler.domain.pool.test_state import GANG, PLACEMENT, node, pool
from tests.unit.services.scheduler.fold import names, of
from tunery.plan.scheduling.policy import PRODUCT
from tunery.plan.scheduling.requests import GIB

AT = 1_000
GB = 1_000_000_000


def described(of: Node, **fields: object) -> Node:
    return replace(of, description=replace(of.description, **fields))


def wanted(number: int, slots: int = 1, lane: Lane = "premium", **fields: object) -> Placement:
    usual = {"device": "cuda", "memory_bytes": 1, "first_submitted_at": number}
    return replace(PLACEMENT, job_id=f"ftjob-{number}", slots=slots, lane=lane, **usual | fields)


def queued(nodes: Iterable[Node], *placements: Placement) -> Pool:
    """A pool in which these placements wait, in order of arrival."""
    return Pool(
        nodes=Map({each.description.node_id: each for each in nodes}),
        waiting=Map(
            {
                placement.job_id: Waiting(placement=placement, arrival=arrival)
                for arrival, placement in enumerate(placements, 1)
            }
        ),
    )


def granted(state: Pool) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Job → its node and devices."""
    return {
        grant.placement.job_id: (member.node_id, member.devices)
        for grant in plan_pool(state, AT).grants
        for member in grant.members
    }


def test_the_fullest_node_that_fits_is_taken_and_ties_go_to_the_first_name() -> None:
    nodes = (node("b", 4), node("a", 4), node("c", 2))
    assert granted(queued(nodes, wanted(1, slots=2))) == {"ftjob-1": ("c", (0, 1))}
    assert granted(queued(nodes, wanted(1, slots=3))) == {"ftjob-1": ("a", (0, 1, 2))}
    assert granted(queued(nodes, wanted(1, 3), wanted(2, 1))) == {
        "ftjob-1": ("a", (0, 1, 2)),
        "ftjob-2": ("a", (3,)),
    }


def test_devices_that_a_lease_holds_are_not_given_again() -> None:
    state = replace(pool(GANG), waiting=queued((), wanted(1, 2), wanted(2, 1)).waiting)
    assert granted(state) == {"ftjob-1": ("a", (1, 3)), "ftjob-2": ("b", (0,))}


def test_review2_p7_nodes_without_a_fabric_get_no_lease_together() -> None:
    """Ranks reach each other over it, not encrypted: its operator says that it is trusted."""
    a, b = node("a", 4), node("b", 4)
    assert plan_pool(queued((a, b), wanted(1, 6)), AT).grants
    apart = described(b, fabric=False)
    assert not plan_pool(queued((a, apart), wanted(1, 6)), AT).grants
    (grant,) = plan_pool(queued((a, apart), wanted(1, 6), wanted(2, 4)), AT).grants
    assert grant.placement.job_id == "ftjob-2"


def test_a_member_carries_the_incarnation_of_its_node() -> None:
    newer = node("a", 1)
    newer = replace(newer, description=replace(newer.description, incarnation="i-2"))
    (grant,) = plan_pool(queued((newer,), wanted(1)), AT).grants
    assert [(m.incarnation, m.slots) for m in grant.members] == [("i-2", 1)]


def test_lanes_go_first_and_what_does_not_fit_is_passed_over() -> None:
    state = queued((node("a", 2),), wanted(1, 1, "free"), wanted(2, 4), wanted(3, 1, "standard"))
    assert list(granted(state)) == ["ftjob-3", "ftjob-1"]


def test_nodes_that_failed_under_a_job_are_its_last_resort() -> None:
    both = (node("a", 1), node("b", 2))
    assert granted(queued(both, wanted(1, excluded_nodes=("a",)))) == {"ftjob-1": ("b", (0,))}
    everywhere = wanted(1, excluded_nodes=("a", "b"))
    assert granted(queued(both, everywhere)) == {"ftjob-1": ("a", (0,))}
    # The other node is too small: excluded is better than never.
    assert granted(queued(both, wanted(1, 2, excluded_nodes=("b",)))) == {"ftjob-1": ("b", (0, 1))}


def test_money_b18_no_slot_stays_free_beside_placements_that_fit() -> None:
    """40 nodes come back at once, 320 wait: one decision fills them all."""
    nodes = [node(f"n{number:02d}", 8) for number in range(40)]
    many = [wanted(number) for number in range(330)]
    assert len(granted(queued(nodes, *many))) == 320


def test_one_decision_grants_so_many_and_says_that_there_is_more() -> None:
    many = [wanted(number) for number in range(PRODUCT.starts_max + 5)]
    planned = plan_pool(queued((node("a", 1_000),), *many), AT)
    assert (len(planned.grants), planned.more) == (PRODUCT.starts_max, True)
    planned = plan_pool(queued((node("a", 3),), *many), AT)
    assert (len(planned.grants), planned.more) == (3, False)
    assert plan_pool(queued((), *many), AT).grants == ()


def test_money_b14_a_placement_gets_its_kind_of_device_with_enough_memory() -> None:
    """Best fit would be the small machine without accelerators."""
    machine, small, large = node("a", 1), node("b", 8), node("c", 8)
    machine = described(machine, device="cpu", memory_bytes=8 * GB)
    small, large = described(small, memory_bytes=24 * GB), described(large, memory_bytes=80 * GB)
    nodes = (machine, small, large)
    assert granted(queued(nodes, wanted(1, memory_bytes=18 * GB))) == {"ftjob-1": ("b", (0,))}
    assert granted(queued(nodes, wanted(1, memory_bytes=40 * GB))) == {"ftjob-1": ("c", (0,))}
    too_much = queued(nodes, wanted(1, memory_bytes=100 * GB))
    assert granted(too_much) == {}


def test_a_placement_that_names_a_model_gets_only_nodes_of_it() -> None:
    nodes = [
        described(node(name, 2), accelerator=model)
        for name, model in (("a", ""), ("b", "h200"), ("c", "a100"))
    ]
    on_h200 = [
        wanted(number, constraints=NodeConstraints(accelerator="h200")) for number in (1, 2, 3)
    ]
    anywhere = [wanted(number) for number in (4, 5)]
    assert granted(queued(nodes, *on_h200, *anywhere)) == {
        "ftjob-1": ("b", (0,)),
        "ftjob-2": ("b", (1,)),
        "ftjob-4": ("a", (0,)),
        "ftjob-5": ("a", (1,)),
    }


def test_tainted_nodes_are_for_those_who_tolerate_them_and_come_first_for_those() -> None:
    plain, tainted = node("a", 1), described(node("b", 1), taints=("research",))
    nodes = (plain, tainted, described(node("c", 2), taints=("research", "eu")))
    tolerant = wanted(2, constraints=NodeConstraints(tolerations=("research",)))
    assert granted(queued(nodes, wanted(1), tolerant, wanted(3))) == {
        "ftjob-1": ("a", (0,)),
        "ftjob-2": ("b", (0,)),
    }
    both = wanted(1, 2, constraints=NodeConstraints(tolerations=("eu", "research")))
    assert granted(queued(nodes, both)) == {"ftjob-1": ("c", (0, 1))}


def test_leases_share_the_memory_of_a_machine_without_accelerators() -> None:
    machine = described(node("a", 4), device="cpu", memory_bytes=5 * GB)
    two = [wanted(number, device="cpu", memory_bytes=2 * GB) for number in (1, 2, 3)]
    assert granted(queued((machine,), *two)) == {"ftjob-1": ("a", (0,)), "ftjob-2": ("a", (1,))}


def test_a_premium_placement_stops_a_free_lease_and_gets_its_slots() -> None:
    day = 24 * HOUR_MS
    decider = empty().accept(
        register("a", "a-1", 1), request("f", lane="free", p50_ms=day, p90_ms=day)
    )
    decider.accept(begun())
    decider.at += 11 * MINUTE
    written = replace(checkpoint(10), captured_ms=11 * MINUTE)
    decider.accept(ReportCheckpoint(token=token(), incarnation=ALIVE, checkpoint=written))
    notice = of(decider.when(request("p", lane="premium")), LeaseDraining)
    assert (notice.ended_by, notice.reason) == ("scheduler", ending("preempted"))
    assert notice.beneficiary == Beneficiary(
        job_id="p", attempt=1, seats=(Seat(node_id="a", slots=1),)
    )
    ended = end_of(decider.when(exited(elapsed_ms=12 * MINUTE)))
    assert (ended.outcome, ended.ended_by) == ("preempted", "scheduler")
    # What else has come meanwhile does not get what was freed for another.
    decider.accept(request("s1", lane="free"))
    granted = of(decider.when(freed()), LeaseGranted)
    assert granted.lease.job_id == "p"
    assert decider.refolded() == decider.state


def test_review2_q1_leases_of_its_own_lane_make_way_for_a_late_placement_of_a_whole_node() -> None:
    """Its wait counts from its queueing; its place among others is that of its submission."""
    usual = {"p50_ms": 100 * HOUR_MS, "p90_ms": 100 * HOUR_MS, "max_gpu_ms": 400 * HOUR_MS}
    decider = empty().accept(
        register("a", "a-1", 2),
        request("s1", first_submitted_at=T0 + 1, memory_bytes=1, **usual),
        request("s2", first_submitted_at=T0 + 2, memory_bytes=1, **usual),
    )
    decider.accept(begun(1), begun(2))
    began = decider.at
    decider.at += MINUTE
    decider.accept(request("ftjob-1", slots=2, memory_bytes=1, **usual))

    def saved(lease: int, step: int) -> tuple[Event, ...]:
        written = replace(checkpoint(step, mark=str(lease)), captured_ms=decider.at - began)
        return decider.when(
            ReportCheckpoint(token=token(lease), incarnation=ALIVE, checkpoint=written)
        )

    decider.at += 20 * HOUR_MS - 30 * MINUTE
    assert "LeaseDraining" not in names(saved(2, 9)), "nothing is late yet"
    decider.at += 30 * MINUTE
    assert "LeaseDraining" not in names(saved(1, 10)), "it is not late yet"
    decider.at += 1
    notice = of(saved(1, 11), LeaseDraining)
    seats = (Seat(node_id="a", slots=2),)
    assert notice.beneficiary == Beneficiary(job_id="ftjob-1", attempt=1, seats=seats)
    decider.accept(exited(1, elapsed_ms=20 * HOUR_MS), freed(1))
    assert "LeaseGranted" not in names(decider.when(request("s1", attempt=2, memory_bytes=1)))
    decider.at += MINUTE
    assert of(saved(2, 10), LeaseDraining).beneficiary == notice.beneficiary
    decider.accept(exited(2, elapsed_ms=20 * HOUR_MS))
    assert of(decider.when(freed(2)), LeaseGranted).lease.job_id == "ftjob-1"
    assert decider.refolded() == decider.state


def test_sched_c15_a_gang_larger_than_any_node_is_refused_with_the_largest_that_fits() -> None:
    """Such a gang waited for ever."""
    decider = empty().accept(register("a", "a-1", 2), register("b", "b-1", 4))
    events = decider.when(request(slots=5))
    assert names(events) == ["PlacementQueued", "PlacementClosed"]
    end = end_of(events)
    assert (end.outcome, end.cause) == ("failed", "user")
    assert end.reason == ending("slots_above_largest", slots=5, largest=4)
    assert not decider.state[POOL].waiting
    assert decider.refolded() == decider.state
    assert of(decider.when(request("ftjob-2", slots=4)), LeaseGranted)


def test_sched_c15_a_gang_waits_while_no_such_node_has_joined_or_the_large_one_is_away() -> None:
    none = empty()
    assert names(none.when(request(slots=5))) == ["PlacementQueued"]
    other = empty().accept(register("a", "a-1", 2))
    assert names(other.when(request(slots=5, device="cuda"))) == ["PlacementQueued"]
    away = empty().accept(register("a", "a-1", 2), register("b", "b-1", 8))
    away.accept(RetireNode(node_id="b", incarnation="b-1"))
    assert names(away.when(request(slots=5))) == ["PlacementQueued"]


def test_a_training_on_gpus_gets_devices_of_several_nodes_and_nothing_else_does() -> None:
    """Their memory differs by some MB."""
    a, b = described(node("a", 4), memory_bytes=GIB), described(node("b", 4), memory_bytes=GIB - 1)
    (grant,) = plan_pool(queued((a, b), wanted(1, 6)), AT).grants
    held = [(member.node_id, member.devices) for member in grant.members]
    assert held == [("a", (0, 1, 2, 3)), ("b", (0, 1))]
    for role in ("eval", "serve"):
        assert granted(queued((a, b), wanted(1, 6, role=role))) == {}
