"""Nodes on a real Kafka: join, lease, a scheduler that is killed, drain and leave."""

import pytest

from bench.fleet import measure

NODES = 6


@pytest.mark.timeout(900)
async def test_core_e6_a_node_reads_what_concerns_it_also_where_its_scheduler_is_killed() -> None:
    figures = await measure(NODES)
    assert figures["own_kb_per_node"] <= figures["kb_per_node"]
    assert figures["kb_per_node"] < figures["journal_kb"] / 5
    # each node: a lease, its end, its freed slots; a new owner writes all of it, and a mark
    assert figures["takeover"]["records"] >= 2 * NODES + 32
