"""The bench of fairness: its pools, and how it sees a refusal."""

import httpx
import pytest

from bench import fairness
from bench.fairness import LOADS, POOLS, TASKS, _sent


def test_each_pool_has_a_task_and_a_load() -> None:
    assert set(POOLS) == set(TASKS) == set(LOADS)


async def test_a_refusal_and_a_broken_connection_are_told_from_an_answer() -> None:
    async def answer(status: int) -> httpx.Response:
        return httpx.Response(status)

    async def broken() -> httpx.Response:
        raise httpx.ReadError("cut")

    assert [await _sent(lambda: answer(200)), await _sent(lambda: answer(429))] == [False, True]
    assert await _sent(broken)


@pytest.mark.timeout(30)
async def test_a_file_that_is_never_checked_ends_the_bench(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fairness, "CHECKED_S_MAX", 0.0)
    waits = httpx.MockTransport(lambda _: httpx.Response(200, json={"status": "uploaded"}))
    async with httpx.AsyncClient(base_url="http://gateway", transport=waits) as http:
        with pytest.raises(TimeoutError):
            await fairness._checked(http, "file-1")
