"""The timeout also holds for work that delays its cancellation."""

import asyncio
import time

import pytest

from services.gateway.web.timeouts import in_time

WAIT_MS = 30


async def stubborn(done: asyncio.Event) -> str:
    """Work whose cancellation takes long, as that of a database client."""
    try:
        await asyncio.sleep(60)
    finally:
        await asyncio.shield(asyncio.sleep(0.2))
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
    done = asyncio.Event()
    begun = time.monotonic()
    with pytest.raises(TimeoutError):
        await in_time(stubborn(done), WAIT_MS)
    assert time.monotonic() - begun < 0.15
    assert not done.is_set()
    await done.wait()


async def test_the_waiting_caller_can_be_cancelled() -> None:
    done = asyncio.Event()
    waiting = asyncio.create_task(in_time(stubborn(done), 60_000))
    await asyncio.sleep(0.01)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await done.wait()
