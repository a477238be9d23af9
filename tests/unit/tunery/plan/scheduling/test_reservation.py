"""When and where a blocked request will fit."""

from dataclasses import replace

from tests.unit.tunery.plan.scheduling.clusters import GB, HOUR, cluster, needs, nodes, ran, request
from tunery.plan.scheduling.draft import Draft
from tunery.plan.scheduling.planning_state import PlanningState
from tunery.plan.scheduling.requests import PlanNode, Request, Running
from tunery.plan.scheduling.reservation import Reservation, reserve

AT = 10 * HOUR


def lease(key: str, node_id: str, slots: int, hours: int) -> Running:
    """A lease that has run for an hour. hours: expected in all."""
    return ran(request(key, slots, hours=hours), ((node_id, slots),), HOUR, AT)


def reserved(state: PlanningState, wanted: Request, *running: Running) -> Reservation | None:
    """The reservation of a request beside these leases."""
    for each in running:
        state.start(each)
    state.advance(AT)
    return reserve(Draft(state, AT), wanted)


def test_a_reservation_is_of_the_first_node_that_will_have_the_slots() -> None:
    running = [lease("x", "a", 3, 9), lease("y", "b", 2, 5), lease("z", "b", 1, 3)]
    reservation = reserved(cluster(nodes(4, 4)), request("gang", 4), *running)
    assert reservation is not None
    assert (reservation.at, reservation.seats) == (AT + 4 * HOUR, (("b", 4),))
    # Node `a` keeps its one slot for whatever runs long; the one of `b` is the gang's.
    assert reservation.spare.free == {"a": 1, "b": 0}


def test_there_is_no_reservation_for_what_never_fits() -> None:
    assert reserved(cluster(nodes(4)), request("gang", 8)) is None


def test_a_gang_waits_for_whole_nodes() -> None:
    running = [lease(name, name, 1, hours) for name, hours in (("a", 9), ("b", 3), ("c", 5))]
    reservation = reserved(cluster(nodes(8, 8, 8)), request("gang", 16), *running)
    assert reservation is not None
    assert (reservation.at, reservation.seats) == (AT + 4 * HOUR, (("b", 8), ("c", 8)))


def test_the_rest_of_a_gang_waits_for_a_node_of_its_own() -> None:
    running = [lease(name, name, 6, hours) for name, hours in (("a", 2), ("b", 3), ("c", 5))]
    reservation = reserved(cluster(nodes(8, 8, 8)), request("gang", 20), *running)
    assert reservation is not None
    assert (reservation.at, reservation.seats) == (AT + 4 * HOUR, (("a", 8), ("b", 8), ("c", 4)))
    state = cluster(nodes(8, 8, 8))
    reservation = reserved(state, request("gang", 18), *running)
    assert reservation is not None
    assert (reservation.at, reservation.seats) == (AT + 2 * HOUR, (("a", 8), ("b", 8), ("c", 2)))


def test_leases_that_share_the_memory_of_a_machine_must_leave_enough_of_it() -> None:
    running = [
        replace(lease(key, "a", 1, hours), memory_bytes=2 * GB)
        for key, hours in (("x", 3), ("y", 5))
    ]
    wanted = replace(request("r"), needs=needs(1, "cpu", 2 * GB))
    reservation = reserved(cluster([PlanNode("a", 4, "cpu", 5 * GB)]), wanted, *running)
    assert reservation is not None
    assert (reservation.at, reservation.seats) == (AT + 2 * HOUR, (("a", 1),))
