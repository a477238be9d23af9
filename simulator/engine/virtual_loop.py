"""An event loop on virtual time: no threads, no sockets, no waiting. Deterministic.

Most of a run is spent here, so timers are kept as tuples, which compare faster than handles do.
"""

import asyncio
import gc
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, copy_context
from heapq import heappop, heappush
from itertools import count
from math import inf
from typing import Any, Final, TypeVar

from msgspec import Struct

T = TypeVar("T")
RUN_S_MAX: Final = 7_200  # of virtual time; most runs take minutes


class Deadlock(Exception):
    """No callback is ready and no timer is set: the program waits for ever."""


class TimeLimitExceeded(Exception):
    """The run exceeded the limit of virtual time."""


class _Task(asyncio.Task[Any]):
    """A task with a deterministic hash, because tasks are kept in sets that are iterated."""

    _numbers = count()

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self._number = next(_Task._numbers)
        super().__init__(*arguments, **named)

    def __hash__(self) -> int:
        return self._number


class _Handle(Struct):
    """A callback that is due: what asyncio asks of a handle, and no more.

    Handles of the standard library take a fifth of a run, for what debug mode shows of them.
    """

    callback: Callable[..., object] | None
    args: tuple[Any, ...]
    context: Context

    def cancel(self) -> None:
        self.callback, self.args = None, ()

    def cancelled(self) -> bool:
        return self.callback is None


class Pause:
    """Virtual time to wait: what a task asks of a future, and no more. One task awaits it, once.

    A timer fires only when nothing else is ready, so it wakes the task itself; with a future
    between the two, each pause took one round of the loop more.
    """

    __slots__ = ("_asyncio_future_blocking", "_cancelled", "_delay_s", "_loop", "_timer")

    def __init__(self, loop: "VirtualLoop", delay_s: float) -> None:
        self._loop, self._delay_s = loop, delay_s
        self._cancelled = False

    def __await__(self) -> Generator["Pause", None, None]:
        self._asyncio_future_blocking = True
        yield self

    def get_loop(self) -> "VirtualLoop":
        return self._loop

    def add_done_callback(self, wake: Callable[["Pause"], object], *, context: Context) -> None:
        loop = self._loop
        self._timer = loop.call_at(loop.now_s + self._delay_s, wake, self, context=context)

    def cancel(self, msg: object = None) -> bool:
        """Wake the task with a CancelledError; False if that is under way already."""
        wake = self._timer.callback
        if wake is None:
            return False
        self._cancelled = True
        self._timer.cancel()
        self._loop.call_soon(wake, self, context=self._timer.context)
        return True

    def result(self) -> None:
        """Raises CancelledError."""
        if self._cancelled:
            raise asyncio.CancelledError


class VirtualLoop(asyncio.BaseEventLoop):
    _ready: deque["_Handle"]
    _stopping: bool

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self.end_s: float = inf
        self._timers: list[tuple[float, int, _Handle]] = []
        self._number = count()
        self.set_task_factory(_task)
        _Task._numbers = count()

    def time(self) -> float:
        return self.now_s

    def call_soon(  # type: ignore[override]  # as below
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> "_Handle":
        handle = _Handle(callback, args, copy_context() if context is None else context)
        self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]  # there is one thread

    def call_at(  # type: ignore[override]  # the stub ties args to the callback's parameters
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> "_Handle":
        timer = _Handle(callback, args, copy_context() if context is None else context)
        heappush(self._timers, (when, next(self._number), timer))
        return timer

    def call_later(  # type: ignore[override]  # as above
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> "_Handle":
        return self.call_at(self.now_s + delay, callback, *args, context=context)

    def pause(self, delay_s: float) -> Pause:
        """`asyncio.sleep` with less overhead."""
        return Pause(self, delay_s)

    def run_in_executor(  # type: ignore[override]  # as above
        self, executor: Any, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """Run the function at once in this thread; there are no others."""
        done: asyncio.Future[T] = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:
            done.set_exception(error)
        return done

    def _run_once(self) -> None:
        """Run ready callbacks until `stop`; while there are none, move the clock to a timer."""
        ready, timers = self._ready, self._timers
        while True:
            while not ready:
                if not timers:
                    raise Deadlock
                when, _, timer = heappop(timers)
                if timer.callback is not None:
                    if when > self.now_s:
                        self.now_s = when
                        if when > self.end_s:
                            raise TimeLimitExceeded(
                                f"still running after {self.end_s:g} s of virtual time"
                            )
                    ready.append(timer)
            for _ in range(len(ready)):
                handle = ready.popleft()
                if handle.callback is not None:
                    try:
                        handle.context.run(handle.callback, *handle.args)
                    except (SystemExit, KeyboardInterrupt):
                        raise
                    except BaseException as error:
                        message = f"a callback failed: {handle.callback!r}"
                        self.call_exception_handler({"message": message, "exception": error})
            if self._stopping:
                return

    def _write_to_self(self) -> None:
        """Nothing to do: no other thread can wake the loop."""


def virtual_loop() -> VirtualLoop:
    """The running virtual loop."""
    loop = asyncio.get_running_loop()
    if not isinstance(loop, VirtualLoop):
        raise TypeError("start it with `run_virtual`")
    return loop


def _task(loop: asyncio.AbstractEventLoop, main: Any, context: Any = None) -> asyncio.Task[Any]:
    return _Task(main, loop=loop, context=context)


def run_virtual(main: Coroutine[Any, Any, T], limit_s: float = RUN_S_MAX) -> T:
    """Run to the end on a fresh loop. Tasks left over are cancelled.

    Raises TimeLimitExceeded when it takes more than `limit_s` of virtual time.
    """
    loop = VirtualLoop()
    loop.end_s = limit_s
    asyncio.set_event_loop(loop)
    gc.disable()  # a run is short, and its garbage comes in one heap at the end
    try:
        return loop.run_until_complete(main)
    finally:
        loop.end_s = inf
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        asyncio.set_event_loop(None)
        loop.close()
        gc.enable()
