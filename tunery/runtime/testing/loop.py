"""An event loop on virtual time: no threads, no sockets, no waiting. Deterministic."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class NothingCanHappen(Exception):
    """No callback is ready and no timer is set: the program waits for ever."""


class _VirtualSelector:
    """Where a real loop would sleep, this one moves its clock."""

    def __init__(self, loop: "VirtualLoop") -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise NothingCanHappen
        self._loop.now_s += timeout
        return []


class VirtualLoop(asyncio.BaseEventLoop):
    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self._selector = _VirtualSelector(self)
        self._clock_resolution = 1e-6

    def time(self) -> float:
        return self.now_s

    def _process_events(self, event_list: list[Any]) -> None:
        """There are none: nothing comes from outside."""

    def _write_to_self(self) -> None:
        """Nobody else could wake the loop."""


def run_virtual(main: Coroutine[Any, Any, T]) -> T:
    """Run to the end on a fresh loop. Tasks left over are cancelled."""
    loop = VirtualLoop()
    asyncio.set_event_loop(loop)
    try:
        return loop.run_until_complete(main)
    finally:
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        asyncio.set_event_loop(None)
        loop.close()
