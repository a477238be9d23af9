"""Expectations about a node, and until when they hold."""

from dataclasses import replace

from tests.unit.tunery.plan.scheduling.clusters import GB, HOUR, MINUTE, nodes, ran, request
from tunery.plan.scheduling.outlook import ClusterOutlook, foresee
from tunery.plan.scheduling.policy import PRODUCT
from tunery.plan.scheduling.requests import FREE, STANDARD, PlanNode

AT = 10 * HOUR
KIND = PlanNode("a", 4, "cuda", 24 * GB).kind


def test_a_node_has_its_slots_as_leases_end_and_could_free_those_of_victims() -> None:
    (node,) = nodes(4)
    free = ran(request("f", 2, "free", hours=9), (("a", 2),), HOUR, AT)
    standard = ran(request("s", 1, "standard", hours=3), (("a", 1),), HOUR, AT)
    outlook = foresee(node, 1, [free, standard], AT, PRODUCT)
    assert outlook.releases == (0, AT + 2 * HOUR, AT + 8 * HOUR, AT + 8 * HOUR)
    assert [lease.key for lease in outlook.victims] == ["f", "s"]
    assert outlook.freeable == (4, 3, 1)
    assert outlook.first == (STANDARD, 0)
    assert outlook.until == AT + 6 * MINUTE + 1  # 5 % of three hours, less the restart
    spared = foresee(node, 1, [free, standard], AT, PRODUCT, {"f"})
    assert ([lease.key for lease in spared.victims], spared.freeable) == (["s"], (2, 1, 1))


def test_nodes_are_kept_in_order_and_found_again_when_they_change() -> None:
    outlook = ClusterOutlook()
    for node, hours in zip(nodes(1, 1), (5, 3), strict=True):
        lease = ran(request("f", 1, "free", hours=hours), ((node.node_id, 1),), HOUR, AT)
        outlook.put(node, foresee(node, 0, [replace(lease, key=node.node_id)], AT, PRODUCT))
    assert outlook.released[KIND, 1] == [(AT + 2 * HOUR, "b"), (AT + 4 * HOUR, "a")]
    assert outlook.freeable[0, KIND, 1] == ["a", "b"]
    assert outlook.take_due(AT + 6 * MINUTE) == set()
    assert outlook.take_due(AT + 6 * MINUTE + 1) == {"b"}
    assert outlook.latest[KIND] == [(-FREE, 0, "a"), (-FREE, 0, "b")]
    (first, second) = nodes(1, 1)
    ran_later = replace(ran(request("s"), (("b", 1),), HOUR, AT), submitted_at=HOUR)
    outlook.put(second, foresee(second, 0, [ran_later], AT, PRODUCT))
    assert outlook.latest[KIND] == [(-FREE, 0, "a"), (-STANDARD, -HOUR, "b")]
    outlook.remove(first)
    outlook.remove(first)
    assert outlook.latest[KIND] == [(-STANDARD, -HOUR, "b")]
