import asyncio
import gc
import logging
from functools import partial

import pytest

from tunery.runtime import tasks
from tunery.runtime.tasks import (
    KeptTask,
    StrayCancellation,
    log_all_tasks,
    run_again,
    run_apart,
    run_together,
    stop_tasks,
)


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "STRAY_PAUSE_MS", 1)


def own_task() -> "asyncio.Task[object]":
    task = asyncio.current_task()
    assert task is not None
    return task


async def cancel_itself() -> None:
    own_task().cancel()
    await asyncio.sleep(1)


async def fail() -> None:
    raise LookupError("the child failed")


async def test_failing_loops_leave_their_caller_uncancelled() -> None:
    """With asyncio.TaskGroup the caller stays `cancelling` up to 3.12, and on 3.11.0 to 3.11.2
    the time-out below then ends in CancelledError: what once ended a projector for ever.
    """
    with pytest.raises(LookupError):
        await run_together({"failing": fail, "endless": partial(asyncio.sleep, 60)})
    assert own_task().cancelling() == 0
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await asyncio.sleep(60)


async def test_cancelled_child_ends_the_others_and_is_named() -> None:
    other = asyncio.Event()

    async def endless() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            other.set()

    with pytest.raises(StrayCancellation, match="cancelled one"):
        await run_together({"cancelled one": cancel_itself, "other": endless})
    assert other.is_set()


async def test_work_apart_begins_uncancelled() -> None:
    own_task().cancel()
    try:
        await asyncio.sleep(0)
    except asyncio.CancelledError:
        assert own_task().cancelling() == 1

        async def state() -> int:
            return own_task().cancelling()

        assert await run_apart(state(), "work") == 0
    finally:
        own_task().uncancel()


async def test_cancellation_of_the_caller_stops_the_work_apart() -> None:
    stopped = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            stopped.set()

    caller = asyncio.create_task(run_apart(work(), "work"))
    await asyncio.sleep(0.01)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert stopped.is_set()


async def test_work_runs_again_after_a_stray_cancellation(
    caplog: pytest.LogCaptureFixture,
) -> None:
    runs = 0

    async def work() -> str:
        nonlocal runs
        runs += 1
        if runs < 3:
            await cancel_itself()
        return "done"

    assert await run_again(work, "work") == "done"
    assert [record.getMessage() for record in caplog.records] == ["task.stray_cancellation"] * 2


async def test_kept_loop_runs_again_in_a_fresh_task_without_being_awaited(
    caplog: pytest.LogCaptureFixture,
) -> None:
    tasks_of_runs: list[asyncio.Task[object]] = []
    began = asyncio.Event()

    async def loop() -> None:
        tasks_of_runs.append(own_task())
        began.set()
        await asyncio.sleep(60)

    kept = KeptTask(loop, "the kept one")
    for _ in range(3):
        async with asyncio.timeout(180):
            await began.wait()
        began.clear()
        tasks_of_runs[-1].cancel()
    async with asyncio.timeout(180):
        await began.wait()
    await kept.stop()
    assert kept.ended.cancelled()
    assert len(set(tasks_of_runs)) == len(tasks_of_runs) == 4
    assert [record.getMessage() for record in caplog.records] == ["task.stray_cancellation"] * 3


async def test_kept_loop_ends_with_what_it_raised() -> None:
    kept = KeptTask(fail, "failing")
    with pytest.raises(LookupError):
        async with asyncio.timeout(180):
            await kept.ended
    await kept.stop()


async def test_kept_loop_that_is_cancelled_before_its_first_step_runs_again() -> None:
    """Its coroutine must not be left behind unawaited: that is a warning, here an error."""
    runs = 0

    async def loop() -> None:
        nonlocal runs
        runs += 1
        await asyncio.sleep(60)

    kept = KeptTask(loop, "early")
    for task in asyncio.all_tasks():
        if task.get_name() == "early":
            task.cancel()
    async with asyncio.timeout(180):
        while runs == 0:  # noqa: ASYNC110  # a count
            await asyncio.sleep(0.005)
    await kept.stop()
    gc.collect()
    assert runs == 1


async def test_released_loop_is_not_run_again() -> None:
    runs = 0

    async def loop() -> None:
        nonlocal runs
        runs += 1
        await cancel_itself()

    kept = KeptTask(loop, "released")
    await asyncio.wait((kept.release(),))
    await asyncio.sleep(0.02)
    assert runs == 1


async def test_task_that_does_not_end_is_left_behind_and_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    released = asyncio.Event()

    async def stubborn() -> None:
        while not released.is_set():
            try:
                await released.wait()
            except asyncio.CancelledError:
                continue

    task = asyncio.create_task(stubborn(), name="stubborn")
    await asyncio.sleep(0)
    assert await stop_tasks((task,), 10) == [task]
    assert vars(caplog.records[-1])["fields"]["task"] == "stubborn"
    released.set()
    await task


async def test_dump_names_each_task_and_where_it_waits(caplog: pytest.LogCaptureFixture) -> None:
    task = asyncio.create_task(asyncio.Event().wait(), name="the one that waits")
    await asyncio.sleep(0)
    caplog.set_level(logging.INFO)
    log_all_tasks()
    await stop_tasks((task,))
    fields = {vars(record)["fields"]["task"]: vars(record)["fields"] for record in caplog.records}
    assert "in wait" in fields["the one that waits"]["stack"]
