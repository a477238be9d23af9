"""The timeout also holds for work that delays its cancellation."""

import asyncio

import pytest

from services.gateway.timeouts import in_time

WAIT_MS = 30


async def stubborn(let_go: asyncio.Event, done: asyncio.Event) -> str:
    """Work whose cancellation takes until `let_go`, as a database client's may."""
    try:
        await asyncio.sleep(60)
    finally:
        await let_go.wait()
        done.set()
    return "late"


async def test_a_result_in_time_is_returned() -> None:
    assert await in_time(asyncio.sleep(0, "ready"), WAIT_MS) == "ready"


async def test_an_exception_of_the_work_is_raised() -> None:
    async def broken() -> None:
        raise LookupError("no such row")

    with pytest.raises(LookupError, match="no such row"):
        await in_time(broken(), WAIT_MS)


async def test_the_limit_holds_while_the_work_still_cleans_up() -> None:
    let_go, done = asyncio.Event(), asyncio.Event()
    with pytest.raises(TimeoutError):
        await in_time(stubborn(let_go, done), WAIT_MS)
    assert not done.is_set()
    let_go.set()
    await done.wait()


async def test_the_waiting_caller_can_be_cancelled() -> None:
    let_go, done = asyncio.Event(), asyncio.Event()
    waiting = asyncio.create_task(in_time(stubborn(let_go, done), 60_000))
    await asyncio.sleep(0.01)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not done.is_set()
    let_go.set()
    await done.wait()
