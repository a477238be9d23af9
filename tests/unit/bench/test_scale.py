"""The bench of large installations on small ones, and the costs that it counts."""

from bench.scale import dead_node, killed_lease, measure, months, observation, refused_command


async def test_review2_e1_a_dead_node_is_reported_and_offsets_are_asked_for_twice_a_second() -> (
    None
):
    figures = await dead_node(300)
    assert figures["reported_silent"] == 1, "no other one"
    assert figures["offset_requests_per_s"] <= 4


def test_review2_e2_one_killed_lease_is_looked_at_on_its_own_node() -> None:
    assert [killed_lease(nodes)["visits"] for nodes in (5, 200)] == [1, 1]
    assert observation(12)["fold_ms"] >= 0


async def test_review2_e3_e7_months_end_and_a_refused_command_lets_others_pass() -> None:
    figures = await months(60)
    assert figures["months_per_s"] > 1
    assert (await refused_command())["goes_on_after_s"] < 60
    assert measure.__doc__
