"""Long-lived tasks: run apart from those who wait for them, end together, stop within a limit.

A task group of asyncio is not used for tasks that may fail while it only waits for them. Up to
Python 3.12 such a group leaves its own task marked as being cancelled (gh-116720), and in
Python 3.11.0 to 3.11.2 every later `asyncio.timeout` in that task then raises CancelledError
instead of TimeoutError (gh-102780). A group also takes no notice of a child that was cancelled.
"""

import asyncio
import io
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, Final, Generic, TypeVar

from schemas.units import Ms
from tunery.runtime.telemetry.logs import log_event
from tunery.runtime.telemetry.metrics import STRAY_CANCELLATIONS
from tunery.runtime.watchdog import watched_loop

LOG: Final = logging.getLogger("tunery.tasks")
CANCEL_MS_MAX: Final[Ms] = 5_000  # for a cancelled task to end; then it is left behind
STRAY_PAUSE_MS: Final[Ms] = 200  # before a task that was cancelled by mistake runs again
STACK_FRAMES_MAX: Final = 12
T = TypeVar("T")


class StrayCancellation(Exception):
    """A task was cancelled although nothing asked it to stop."""

    def __init__(self, task: str) -> None:
        super().__init__(f"the task {task!r} was cancelled, and nothing asked it to stop")


async def stop_tasks(
    tasks: Iterable["asyncio.Task[Any]"], wait_ms: Ms = CANCEL_MS_MAX
) -> list["asyncio.Task[Any]"]:
    """Cancel the tasks, and return those that have not ended after `wait_ms`."""
    running = [task for task in tasks if not task.done()]
    for task in running:
        task.cancel()
        task.add_done_callback(retrieve)
    if running:
        await asyncio.wait(running, timeout=wait_ms / 1_000)
    late = [task for task in running if not task.done()]
    for task in late:
        log_event(
            LOG, logging.ERROR, "task.not_stopped", task=task.get_name(), stack=stack_of(task)
        )
    return late


def retrieve(task: "asyncio.Task[Any]") -> None:
    """Retrieve the exception of a task that has ended, so that asyncio does not warn about it."""
    if not task.cancelled():
        task.exception()


def result_of(task: "asyncio.Task[T]") -> T:
    """The result of a task that has ended, or what it raised.

    Raises StrayCancellation when it was cancelled: call this only where nothing asked for that.
    """
    if task.cancelled():
        raise StrayCancellation(task.get_name())
    return task.result()


async def run_apart(work: Coroutine[Any, Any, T], name: str) -> T:
    """The result of `work`, which runs in its own task and so begins uncancelled.

    A cancellation of the caller stops the work. Raises StrayCancellation when the work ends as
    cancelled and the caller was not.
    """
    task = asyncio.create_task(work, name=name)
    try:
        await asyncio.wait((task,))
    finally:
        await stop_tasks((task,))
    return result_of(task)


class KeptTask(Generic[T]):
    """A loop that runs in a task from now on, until it ends by itself or is released.

    After a stray cancellation, which is logged and counted, it runs again in a fresh task.
    Callbacks of the event loop see to that. Nothing can cancel them by mistake, unlike a second
    task that would wait for the first.

    `ended` gets the result of the loop, or what it raised. With `is_watched` its reports of
    progress are watched: it must report again and again.
    """

    def __init__(
        self, work: Callable[[], Coroutine[Any, Any, T]], name: str, *, is_watched: bool = True
    ) -> None:
        self.name = name
        self._work, self._is_watched = work, is_watched
        self._loop = asyncio.get_running_loop()
        self._is_released = False
        self.ended: asyncio.Future[T] = self._loop.create_future()
        self._run()

    def _run(self) -> None:
        if self._is_released:
            return
        work = _watch(self._work, self.name) if self._is_watched else self._work()
        self._task = asyncio.create_task(work, name=self.name)
        self._task.add_done_callback(self._keep)

    def _keep(self, task: "asyncio.Task[T]") -> None:
        if self._is_released or self.ended.done():
            return
        if task.cancelled():
            note_stray(self.name, StrayCancellation(self.name))
            self._loop.call_later(STRAY_PAUSE_MS / 1_000, self._run)
        elif (error := task.exception()) is not None:
            self.ended.set_exception(error)
        else:
            self.ended.set_result(task.result())

    def release(self) -> "asyncio.Task[T]":
        """Keep the loop no longer; the task in which it runs, to be stopped. `ended` stays open."""
        self._is_released = True
        return self._task

    async def stop(self) -> None:
        """Release the loop and stop its task; `ended` is cancelled if the loop had not ended."""
        await stop_tasks((self.release(),))
        self.ended.cancel()


async def run_again(work: Callable[[], Coroutine[Any, Any, T]], name: str) -> T:
    """Run the endless loop `name` apart, as `run_apart` does, and watch its reports of progress.

    After a stray cancellation, which is logged and counted, the loop is started again.
    """
    kept = KeptTask(work, name)
    try:
        await asyncio.wait((kept.ended,))
    finally:
        await kept.stop()
    return kept.ended.result()


async def run_together(works: Mapping[str, Callable[[], Coroutine[Any, Any, None]]]) -> None:
    """Run endless loops, each in its own task, until one of them ends; then stop the others.

    The keys name the loops, whose reports of progress are watched. Raises what the first one
    raised; StrayCancellation when it was cancelled and the caller was not.
    """
    tasks = [asyncio.create_task(_watch(work, name), name=name) for name, work in works.items()]
    try:
        ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await stop_tasks(tasks)
    for task in sorted(ended, key=tasks.index):
        result_of(task)


async def _watch(work: Callable[[], Coroutine[Any, Any, T]], name: str) -> T:
    """Create the coroutine only now, as a task that is cancelled before would never await it."""
    with watched_loop(name):
        return await work()


def note_stray(task: str, error: StrayCancellation) -> None:
    """Log and count a stray cancellation."""
    log_event(LOG, logging.ERROR, "task.stray_cancellation", task=task, why=error)
    STRAY_CANCELLATIONS.labels(task).inc()


def log_all_tasks() -> None:
    """One log event for each task of the running loop: its name, its state, where it waits."""
    for task in sorted(asyncio.all_tasks(), key=lambda task: task.get_name()):
        cancelling, stack = task.cancelling(), stack_of(task)
        log_event(
            LOG, logging.WARNING, "task.dump", task=task.get_name(), cancelling=cancelling,
            stack=stack,
        )  # fmt: skip


def stack_of(task: "asyncio.Task[Any]") -> str:
    """Return the stack of a suspended task, its innermost frames only."""
    text = io.StringIO()
    task.print_stack(limit=STACK_FRAMES_MAX, file=text)
    return text.getvalue()
