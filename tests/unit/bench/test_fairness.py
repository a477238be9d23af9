"""The bench of fairness: its pools, and a file that is never checked."""

import httpx
import pytest

from bench import fairness
from bench.fairness import POOLS, TASKS
from bench.loads import LOADS


def test_each_pool_has_a_task_and_a_load() -> None:
    assert set(POOLS) == set(TASKS) == set(LOADS)


def test_a_time_beside_the_other_is_compared_with_those_around_it_at_the_same_speed() -> None:
    alone = [fairness._Part([0.1], 50.0), fairness._Part([0.1], 150.0)]
    beside = [fairness._Part([0.125], 100.0)]
    assert fairness._lost(beside, alone, lambda part: part.rate) == [pytest.approx(20.0)]
    assert fairness._lost(beside, alone, lambda part: part.speed) == [0.0]


@pytest.mark.timeout(300)
async def test_a_file_that_is_never_checked_ends_the_bench(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fairness, "CHECKED_S_MAX", 0.0)
    waits = httpx.MockTransport(lambda _: httpx.Response(200, json={"status": "uploaded"}))
    async with httpx.AsyncClient(base_url="http://gateway", transport=waits) as http:
        with pytest.raises(TimeoutError):
            await fairness._checked(http, "file-1")
