"""The benchmark of the planner runs at a small size."""

import pytest

from bench import scheduler


def test_decisions_are_measured_in_a_full_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("WAITING", 30), ("POOL_NODES", 3), ("DECISIONS", 10)):
        monkeypatch.setattr(scheduler, name, value)
    assert scheduler.speed().keys() == {"decision_p50_ms", "decision_p99_ms", "decisions_per_s"}
