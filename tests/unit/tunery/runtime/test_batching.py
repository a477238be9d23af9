"""Calls become batches while one is under way, and each gets its own result."""

import asyncio
from collections.abc import Sequence

import pytest

from tunery.runtime.batching import Batcher


class Doubler:
    """Doubles numbers; a batch with a negative one fails as a whole."""

    def __init__(self, size_max: int = 10) -> None:
        self.batches: list[list[int]] = []
        self.began, self.free = asyncio.Event(), asyncio.Event()
        self.double = Batcher(self._run, size_max, ValueError)

    async def _run(self, numbers: Sequence[int]) -> Sequence[int]:
        self.batches.append(list(numbers))
        self.began.set()
        await self.free.wait()
        if 0 in numbers:
            raise LookupError("zero")
        if min(numbers) < 0:
            raise ValueError(f"{min(numbers)} is negative")
        return [2 * number for number in numbers]


async def test_calls_wait_for_the_batch_under_way_and_are_the_next_one() -> None:
    doubler = Doubler(size_max=3)
    first = asyncio.create_task(doubler.double(1))
    await doubler.began.wait()
    others = [asyncio.create_task(doubler.double(number)) for number in range(2, 7)]
    await asyncio.sleep(0)
    others[1].cancel()
    doubler.free.set()
    assert await first == 2
    results = await asyncio.gather(*others, return_exceptions=True)
    assert [results[0], *results[2:]] == [4, 8, 10, 12]
    assert isinstance(results[1], asyncio.CancelledError)
    assert doubler.batches == [[1], [2, 4], [5, 6]]


async def test_a_call_that_cannot_be_answered_fails_alone() -> None:
    doubler = Doubler()
    doubler.free.set()
    results = await asyncio.gather(*map(doubler.double, (1, -2, 3)), return_exceptions=True)
    assert (results[0], results[2]) == (2, 6)
    assert isinstance(results[1], ValueError)
    assert doubler.batches == [[1, -2, 3], [1], [-2], [3]]


async def test_any_other_error_is_of_all_and_the_next_call_is_a_new_batch() -> None:
    doubler = Doubler()
    doubler.free.set()
    results = await asyncio.gather(*map(doubler.double, (1, 0)), return_exceptions=True)
    assert [type(result) for result in results] == [LookupError, LookupError]
    assert await doubler.double(4) == 8


async def test_callers_of_a_stopped_loop_do_not_wait_for_ever() -> None:
    doubler = Doubler(size_max=1)
    calls = [asyncio.create_task(doubler.double(number)) for number in (1, 2)]
    await doubler.began.wait()
    (batches,) = (task for task in asyncio.all_tasks() if task.get_name() == "batches")
    batches.cancel()
    async with asyncio.timeout(180):
        await asyncio.wait(calls)
    assert all(call.cancelled() for call in calls)
    doubler.free.set()
    with pytest.raises(ValueError, match="negative"):
        await doubler.double(-1)
