"""Seats for a request: best fit, gangs over whole nodes, device and memory."""

from dataclasses import replace

from tests.unit.tunery.plan.scheduling.clusters import GB, needs, nodes
from tunery.plan.scheduling.capacity import Capacity
from tunery.plan.scheduling.requests import GIB, PlanNode

MIB = 1 << 20


def test_the_node_that_is_left_fullest_is_taken_and_ties_go_to_the_first_name() -> None:
    free = Capacity(nodes(8, 4, 4))
    assert free.find_seats(needs(3)) == (("b", 3),)
    free.take((("c", 2),), 0)
    assert free.find_seats(needs(2)) == (("c", 2),)
    assert free.find_seats(needs(5)) == (("a", 5),)
    free.give((("c", 2),), 0)
    assert free.find_seats(needs(2)) == (("b", 2),)


def test_devices_with_more_memory_are_kept_for_those_that_need_them() -> None:
    small, large = PlanNode("b", 8, "cuda", 24 * GB), PlanNode("a", 1, "cuda", 80 * GB)
    free = Capacity([large, small])
    assert free.find_seats(needs(1)) == (("b", 1),)
    assert free.find_seats(needs(1, "cuda", 40 * GB)) == (("a", 1),)
    assert free.find_seats(needs(1, "cuda", 90 * GB)) is None
    assert free.find_seats(needs(1, "cpu")) is None


def test_leases_of_a_machine_share_its_memory() -> None:
    free = Capacity([PlanNode("a", 4, "cpu", 5 * GB)])
    two = needs(1, "cpu", 2 * GB)
    for _ in range(2):
        seats = free.find_seats(two)
        assert seats == (("a", 1),)
        free.take(seats, 2 * GB)
    assert free.find_seats(two) is None
    assert free.find_seats(needs(1, "cpu", GB)) == (("a", 1),)


def test_a_gang_gets_whole_nodes_of_one_domain_where_one_has_enough() -> None:
    near = [PlanNode(name, 8, "cuda", 24 * GB, "east") for name in "bdfg"]
    far = [PlanNode(name, 8, "cuda", 24 * GB, "west") for name in "ace"]
    free = Capacity([*near, *far])
    assert free.find_seats(needs(16)) == (("a", 8), ("c", 8))
    assert free.find_seats(needs(32)) == (("b", 8), ("d", 8), ("f", 8), ("g", 8))
    assert free.find_seats(needs(40)) == (("a", 8), ("b", 8), ("d", 8), ("f", 8), ("g", 8))
    assert free.find_seats(needs(20)) == (("a", 8), ("c", 8), ("e", 4))
    assert free.find_seats(needs(64)) is None
    free.take((("a", 1),), 0)
    assert free.find_seats(needs(24)) == (("b", 8), ("d", 8), ("f", 8))


def test_nodes_that_failed_under_a_job_are_its_last_resort() -> None:
    free = Capacity(nodes(1, 2))
    assert free.find_seats(needs(1, "cuda", GB, "a")) == (("b", 1),)
    assert free.find_seats(needs(1, "cuda", GB, "a", "b")) == (("a", 1),)
    assert free.find_seats(needs(2, "cuda", GB, "b")) == (("b", 2),)


def test_nodes_whose_shared_memory_is_too_small_are_no_others() -> None:
    """A job that failed on the only machine that could hold it tries that one again."""
    free = Capacity([PlanNode("a", 4, "cpu", 8 * GB), PlanNode("b", 4, "cpu", 4 * GB)])
    assert free.find_seats(needs(2, "cpu", 3 * GB, "a")) == (("a", 2),)


def test_a_copy_has_free_slots_of_its_own() -> None:
    free = Capacity(nodes(4))
    twin = free.copy()
    twin.take((("a", 3),), GB)
    assert (free.free["a"], twin.free["a"]) == (4, 1)
    twin.limit("a", 2)
    assert twin.free["a"] == 1
    twin.set_free("a", 0)
    assert twin.find_seats(needs(1)) is None


def test_nodes_come_and_go() -> None:
    free = Capacity(nodes(4, 8))
    free.take((("b", 1),), 0)
    assert (free.largest(needs(1)), free.largest_of(nodes(8)[0].kind)) == (8, 8)
    free.put(PlanNode("b", 2, "cuda", 24 * GB))
    assert (free.free, free.largest(needs(1))) == ({"a": 4, "b": 2}, 4)
    free.remove("a")
    free.remove("b")
    free.remove("b")
    assert (free.free, free.largest(needs(1)), free.find_seats(needs(1))) == ({}, 0, None)


def test_slots_of_several_nodes_are_those_of_whole_ones_of_a_kind_and_of_one_more() -> None:
    free = Capacity([*nodes(4, 4, 3, 2), PlanNode("z", 9, "cpu", 8 * GB)])
    assert free.most(needs(5)) == 11
    assert free.most(replace(needs(5), on_one_node=True)) == 4
    assert free.find_seats(needs(11)) == (("a", 4), ("b", 4), ("c", 3))
    assert free.find_seats(needs(12)) is None
    assert free.most(needs(1, "cpu")) == 9


def test_a_gang_gets_a_node_that_failed_under_it_where_the_others_are_too_few() -> None:
    assert Capacity(nodes(4, 4)).find_seats(needs(6, "cuda", GB, "b")) == (("a", 4), ("b", 2))
    seats = Capacity(nodes(4, 4, 4)).find_seats(needs(6, "cuda", GB, "b"))
    assert seats == (("a", 4), ("c", 2))


def test_nodes_that_differ_by_some_mb_of_memory_are_alike_and_the_least_counts() -> None:
    """Kernels and drivers keep a part of it, and not on all machines as much."""
    least = 64 * GIB - 300 * MIB
    sizes = (64 * GIB + 200 * MIB, least, 64 * GIB - 4096)
    free = Capacity(
        PlanNode(name, 4, "cuda", size) for name, size in zip("abc", sizes, strict=True)
    )
    assert free.most(needs(9)) == 12
    assert free.find_seats(needs(9, "cuda", least)) == (("a", 4), ("b", 4), ("c", 1))
    assert free.find_seats(needs(9, "cuda", least + 1)) is None
    free.remove("b")
    assert free.find_seats(needs(6, "cuda", least + 1)) == (("a", 4), ("c", 2))
    free.put(PlanNode("b", 4, "cuda", 65 * GIB))
    assert free.most(needs(9)) == 8


def test_a_gang_gets_no_rest_of_a_machine_whose_memory_others_use() -> None:
    free = Capacity(PlanNode(name, 4, "cpu", 8 * GIB) for name in "abc")
    free.take((("b", 1),), 7 * GIB)
    assert free.find_seats(needs(6, "cpu", 2 * GIB)) == (("a", 4), ("c", 2))
    assert free.find_seats(needs(10, "cpu", 2 * GIB)) is None
    assert free.find_seats(needs(6, "cpu", 3 * GIB)) is None, "not four on any"
