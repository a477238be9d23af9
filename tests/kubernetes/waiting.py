"""Waiting for what a cluster does in its own time."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

from tunery.local.kubernetes.kubelet import POLL_S


async def eventually(what: str, holds: Callable[[], Any], seconds_max: float = 300.0) -> Any:
    """Wait until a coroutine function returns something true, which is returned."""
    deadline = time.monotonic() + seconds_max
    while True:
        value = await holds()
        if value:
            return value
        assert time.monotonic() < deadline, f"{what}: not within {seconds_max} s"
        await asyncio.sleep(POLL_S)
