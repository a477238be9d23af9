"""Polls the API until a condition holds or the time is over."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

T = TypeVar("T")
POLL_S: Final = 0.5


class DeadlineExceeded(Exception):
    """A condition did not hold in time; the message shows the last answer."""


async def poll_until(
    request: Callable[[], Awaitable[T]], is_done: Callable[[T], bool], seconds_max: float
) -> T:
    """Repeat `request`, at least once, until `is_done` accepts it. Raises DeadlineExceeded."""
    for _ in range(max(1, int(seconds_max / POLL_S))):
        answer = await request()
        if is_done(answer):
            return answer
        await asyncio.sleep(POLL_S)
    raise DeadlineExceeded(f"not done after {seconds_max:.0f} s; the last answer: {answer}")
