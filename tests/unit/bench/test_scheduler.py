"""The benchmark of the planner runs at a small size."""

import pytest

from bench import scheduler


def test_decisions_are_measured_in_a_full_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("WAITING", 30), ("POOL_NODES", 3), ("DECISIONS", 12), ("HEAP_JOBS", 20)):
        monkeypatch.setattr(scheduler, name, value)
    for name, value in (("FORECAST_JOBS", 20), ("FORECAST_NODES", 2)):
        monkeypatch.setattr(scheduler, name, value)
    assert scheduler.heap_of_many(20)["jobs"] == 20
    figures = scheduler.measure_speed()
    assert {"decision_p50_ms", "decision_p99_ms", "decisions_per_s"} < figures.keys()
    assert figures["decision_of_2000_nodes_p50_ms"] >= 0  # rounded: so few nodes take 5 µs
    assert figures["decisions_per_s"] > 0


@pytest.mark.long
def test_the_memory_of_the_scheduler_does_not_grow_with_its_jobs() -> None:
    figures = scheduler.heap_of_many(20_000)
    assert figures["blocks_more"] < figures["blocks_first"] // 100
