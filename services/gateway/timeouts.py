"""A timeout that does not wait for the cancelled task."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from schemas.units import Ms

T = TypeVar("T")


async def in_time(work: Coroutine[Any, Any, T], wait_ms: Ms) -> T:
    """The result of the work. Raises TimeoutError after `wait_ms`; the work is cancelled then.

    `asyncio.timeout` would wait until the cancellation has finished. A database client finishes it
    only when the server has confirmed it, which a server that hangs never does.
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
    """Retrieve the abandoned task's exception, so that asyncio does not warn about it."""
    if not task.cancelled():
        task.exception()
