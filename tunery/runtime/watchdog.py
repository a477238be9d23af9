"""Reports of progress by the loops of a host, and the watch over them.

A loop says `beat("working")` or `beat("waiting")` (for input) each time round. The watch looks at
regular intervals and counts for each loop in how many looks in a row it has said nothing. Silence
is counted in looks, not in time, because a process that was stopped or starved itself looks
seldom, too: its loops had no chance to report.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, TypeVar

from schemas.units import Ms

LOOK_EVERY_MS: Final[Ms] = 5_000
#: longer than any single step of a loop may take: a connection, a statement and its cancellation
SILENCE_MS_MAX: Final[Ms] = 120_000
REPORT_EVERY_MS: Final[Ms] = 20_000  # while a loop waits for input that may never come
T = TypeVar("T")
Activity: TypeAlias = Literal["starting", "working", "waiting"]


@dataclass(eq=False)
class LoopReports:
    """Progress that one loop reported."""

    name: str
    activity: Activity = "starting"
    is_new: bool = True
    silent_looks: int = 0  # checks in a row without a new report


class HostWatch:
    """The loops of one run of a host. One that has entered no loop yet is watched as a whole."""

    def __init__(self, host: str) -> None:
        self.name = host
        self._host = LoopReports(host)
        self._loops: dict[LoopReports, None] = {}

    def context(self) -> Context:
        """A context for the task of the run: loops in it, and in its child tasks, report here."""
        context = copy_context()
        context.run(_WATCH.set, self)
        context.run(_REPORTS.set, self._host)
        return context

    @contextmanager
    def _entered(self, name: str) -> Iterator[None]:
        reports = LoopReports(name)
        self._loops[reports] = None
        outer = _REPORTS.set(reports)
        try:
            yield
        finally:
            _REPORTS.reset(outer)
            self._loops.pop(reports, None)
            self._host.is_new = True  # it leaves a loop, so it makes progress

    def look(self, silent_looks_max: int) -> list[LoopReports]:
        """Count one look; the loops that were silent in more than `silent_looks_max` of them."""
        watched = list(self._loops) or [self._host]
        for reports in watched:
            reports.silent_looks = 0 if reports.is_new else reports.silent_looks + 1
            reports.is_new = False
        return [reports for reports in watched if reports.silent_looks > silent_looks_max]


_WATCH: ContextVar[HostWatch | None] = ContextVar("tunery.watch", default=None)
_REPORTS: ContextVar[LoopReports | None] = ContextVar("tunery.reports", default=None)


@contextmanager
def watched_loop(name: str) -> Iterator[None]:
    """Around an endless loop of a host, in its own task. Loops are not nested in one task."""
    watch = _WATCH.get()
    if watch is None:
        yield
    else:
        with watch._entered(name):
            yield


def watched_host() -> str | None:
    """The name of the host in whose run, or in a child task of it, this is called."""
    watch = _WATCH.get()
    return None if watch is None else watch.name


def beat(activity: Activity) -> None:
    """Report progress for the loop, or the host, that runs this."""
    reports = _REPORTS.get()
    if reports is not None:
        reports.activity, reports.is_new = activity, True


async def next_item(queue: "asyncio.Queue[T]") -> T:
    """The next item of a queue, however long that takes; reports meanwhile that it waits."""
    while True:
        beat("waiting")
        try:
            async with asyncio.timeout(REPORT_EVERY_MS / 1_000):
                return await queue.get()
        except TimeoutError:
            continue


async def wait_forever() -> None:
    """Wait until cancelled, and report so: for hosts whose work is done by callbacks."""
    while True:
        beat("waiting")
        await asyncio.sleep(REPORT_EVERY_MS / 1_000)
