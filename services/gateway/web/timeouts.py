"""Answers in time, whatever the work thinks of being cancelled."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from schemas.units import Ms

T = TypeVar("T")


async def in_time(work: Coroutine[Any, Any, T], wait_ms: Ms) -> T:
    """The result, or TimeoutError after `wait_ms`; the work is then cancelled and left alone.

    `asyncio.timeout` would wait for the cancellation to be over. A database client gives its
    connection back only when the server has confirmed that, and a server that hangs never does.
    """
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait({task}, timeout=wait_ms / 1_000)
    finally:
        if not task.done():
            task.add_done_callback(_seen)
            task.cancel()
    if not task.done():
        raise TimeoutError(f"no answer in {wait_ms} ms")
    return task.result()


def _seen(task: "asyncio.Task[Any]") -> None:
    """What an abandoned task raises is not worth a warning."""
    if not task.cancelled():
        task.exception()
