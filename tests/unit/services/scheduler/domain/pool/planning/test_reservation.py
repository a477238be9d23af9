"""When and where a blocked request will fit."""

from dataclasses import replace

from services.scheduler.domain.pool.planning.capacity import Capacity
from services.scheduler.domain.pool.planning.requests import Running
from services.scheduler.domain.pool.planning.reservation import expected_end, reserve
from tests.unit.services.scheduler.domain.pool.planning.clusters import (
    HOUR,
    MINUTE,
    nodes,
    ran,
    request,
)

AT = 10 * HOUR


def lease(key: str, node_id: str, slots: int, hours: int) -> Running:
    """It has run for an hour, and is expected to run for so many in all."""
    return ran(request(key, slots, hours=hours), ((node_id, slots),), HOUR, AT)


def test_a_lease_ends_at_its_p90_and_one_that_has_passed_it_goes_on_for_a_while() -> None:
    assert expected_end(lease("a", "a", 1, 3), AT) == AT + 2 * HOUR
    assert expected_end(lease("a", "a", 1, 1), AT) == AT + 6 * MINUTE
    assert expected_end(replace(lease("a", "a", 1, 9), ends_by=AT + 5), AT) == AT + 5
    assert expected_end(replace(lease("a", "a", 1, 9), ends_by=AT - 5), AT) == AT + 1
    unstarted = replace(lease("a", "a", 1, 9), started_at=None, granted_at=AT)
    assert expected_end(unstarted, AT) == AT + 9 * HOUR


def test_a_reservation_is_of_the_first_node_that_will_have_the_slots() -> None:
    free = Capacity(nodes(4, 4))
    running = [lease("x", "a", 3, 9), lease("y", "b", 2, 5), lease("z", "b", 1, 3)]
    for each in running:
        free.take(each.seats, 0)
    reservation = reserve(free, running, request("gang", 4), AT)
    assert reservation is not None
    assert (reservation.at, reservation.seats) == (AT + 4 * HOUR, (("b", 4),))
    # Node `a` keeps its one slot for whatever runs long; the one of `b` is the gang's.
    assert reservation.spare.free == {"a": 1, "b": 0}


def test_there_is_no_reservation_for_what_never_fits() -> None:
    assert reserve(Capacity(nodes(4)), [], request("gang", 8), AT) is None


def test_a_gang_waits_for_whole_nodes() -> None:
    free = Capacity(nodes(8, 8, 8))
    running = [lease(name, name, 1, hours) for name, hours in (("a", 9), ("b", 3), ("c", 5))]
    for each in running:
        free.take(each.seats, 0)
    reservation = reserve(free, running, request("gang", 16), AT)
    assert reservation is not None
    assert (reservation.at, reservation.seats) == (AT + 4 * HOUR, (("b", 8), ("c", 8)))
