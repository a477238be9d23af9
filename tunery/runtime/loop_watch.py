"""A thread that ends the process when its event loop is blocked.

The watchdog of the hosts runs on the loop, so a call on the loop that never returns stops it, too,
and with it signals, requests and heartbeats. This thread asks the loop for a sign at each of its
looks. As the watchdog does, it counts looks and not time: while the whole process is stopped, or
the machine sleeps, it does not look either, so a process that goes on afterwards is not ended. It
cannot see a library call that keeps the interpreter's lock, because it cannot run then.
"""

import asyncio
import faulthandler
import logging
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from schemas.units import Ms
from tunery.runtime.telemetry.logs import log_event

LOG: Final = logging.getLogger("tunery.process")
LOOK_EVERY_MS: Final[Ms] = 2_000
#: far above any call on a loop: what may take a second runs in a thread or a process
BLOCKED_MS_MAX: Final[Ms] = 60_000
REPORT_MS_MAX: Final[Ms] = 2_000  # to write the log, on which the blocked call itself may wait
STACK_FRAMES_MAX: Final = 20


class LoopWatch:
    """Looks at one event loop, from its own thread, until `stop`."""

    def __init__(self, exit_status: int) -> None:
        self._exit_status = exit_status
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._stopped = threading.Event()
        self._has_answered = True  # the loop, since the last look
        self._thread = threading.Thread(target=self._run, name="loop watch", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread; does not wait for it."""
        self._stopped.set()

    def _run(self) -> None:
        silent_looks, silent_looks_max = 0, BLOCKED_MS_MAX // LOOK_EVERY_MS
        while silent_looks <= silent_looks_max:
            if self._has_answered:
                silent_looks, self._has_answered = 0, False
                try:
                    self._loop.call_soon_threadsafe(self._answer)
                except RuntimeError:  # the loop is closed: the process ends
                    return
            else:
                silent_looks += 1
            if self._stopped.wait(LOOK_EVERY_MS / 1_000):
                return
        if not _ends_in(REPORT_MS_MAX, self._report):
            _ends_in(REPORT_MS_MAX, faulthandler.dump_traceback)  # it takes no lock of the log
        os._exit(self._exit_status)  # an orderly exit would wait for the loop

    def _answer(self) -> None:
        self._has_answered = True

    def _report(self) -> None:
        """One event that says what is wrong, and one with the stack of each thread."""
        log_event(
            LOG, logging.CRITICAL, "process.blocked", blocked_ms=BLOCKED_MS_MAX,
            stack=_stack_of(self._loop_thread),
        )  # fmt: skip
        for thread in threading.enumerate():
            stack = _stack_of(thread.ident)
            log_event(LOG, logging.WARNING, "thread.dump", thread=thread.name, stack=stack)
        logging.shutdown()


@contextmanager
def watched_event_loop(exit_status: int) -> Iterator[None]:
    """The process ends with `exit_status` when the running loop is blocked for BLOCKED_MS_MAX."""
    watch = LoopWatch(exit_status)
    watch.start()
    try:
        yield
    finally:
        watch.stop()


def _stack_of(thread: int | None) -> str:
    """The innermost frames of a thread."""
    frame = sys._current_frames().get(thread or 0)
    return "".join(traceback.format_stack(frame, STACK_FRAMES_MAX)) if frame else "it has ended"


def _ends_in(ms: Ms, work: Callable[[], None]) -> bool:
    """Run the work in a thread; whether it has ended in time."""
    thread = threading.Thread(target=work, name="report", daemon=True)
    thread.start()
    thread.join(ms / 1_000)
    return not thread.is_alive()
