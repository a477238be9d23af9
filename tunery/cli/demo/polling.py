"""Waiting for what the API will say, with an end."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

T = TypeVar("T")
POLL_S: Final = 0.5


class Late(Exception):
    """Something did not happen in time."""


async def until(
    ask: Callable[[], Awaitable[T]], done: Callable[[T], bool], seconds_max: float
) -> T:
    """Ask until `done`. Raises Late, which shows what was answered last."""
    for _ in range(int(seconds_max / POLL_S)):
        found = await ask()
        if done(found):
            return found
        await asyncio.sleep(POLL_S)
    raise Late(f"not there after {seconds_max:.0f} s; the last answer: {found}")
