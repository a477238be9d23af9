import asyncio
import threading

import pytest

from simulator.engine.virtual_loop import Deadlock, TimeLimitExceeded, run_virtual, virtual_loop


def test_the_clock_moves_to_the_next_timer() -> None:
    async def wait() -> float:
        await asyncio.sleep(1_800)
        await virtual_loop().pause(1_800)
        return asyncio.get_running_loop().time()

    assert run_virtual(wait()) == pytest.approx(3_600)


def test_timers_end_in_their_order_and_equal_ones_as_they_were_set() -> None:
    ended: list[str] = []

    async def sleep(name: str, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        ended.append(name)

    async def race() -> None:
        await asyncio.gather(sleep("c", 2), sleep("a", 1), sleep("b", 1))

    run_virtual(race())
    assert ended == ["a", "b", "c"]


def test_a_timeout_cuts_off_what_waits() -> None:
    async def wait() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3):
                await virtual_loop().pause(60)
        return asyncio.get_running_loop().time()

    assert run_virtual(wait()) == pytest.approx(3)


def test_a_pause_that_is_cancelled_twice_ends_once_and_moves_no_clock() -> None:
    woken: list[str] = []

    async def pause() -> None:
        try:
            await virtual_loop().pause(60)
        except asyncio.CancelledError:
            woken.append("cancelled")
            raise

    async def cancel() -> float:
        early = asyncio.create_task(pause())  # cancelled before it has begun
        early.cancel()
        task = asyncio.create_task(pause())
        await asyncio.sleep(1)
        task.cancel()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert early.cancelled()
        return asyncio.get_running_loop().time()

    assert run_virtual(cancel()) == pytest.approx(1)
    assert woken == ["cancelled"]


def test_pauses_and_sleeps_of_one_length_end_as_they_were_begun() -> None:
    ended: list[int] = []

    async def wait(number: int) -> None:
        await (virtual_loop().pause(2) if number % 2 else asyncio.sleep(2))
        ended.append(number)

    async def race() -> None:
        await asyncio.gather(*map(wait, range(6)))

    run_virtual(race())
    assert ended == [*range(6)]


def test_waiting_for_an_event_that_cannot_come_is_an_error() -> None:
    async def wait() -> None:
        await asyncio.Event().wait()

    with pytest.raises(Deadlock):
        run_virtual(wait())


def test_executors_run_in_the_loop_itself() -> None:
    async def work() -> threading.Thread:
        return await asyncio.to_thread(threading.current_thread)

    async def fail() -> None:
        await asyncio.to_thread(int, "x")

    assert run_virtual(work()) is threading.main_thread()
    with pytest.raises(ValueError, match="invalid literal"):
        run_virtual(fail())


def test_sets_of_tasks_have_the_same_order_in_every_run() -> None:
    async def sleep_a_second() -> None:
        await asyncio.sleep(1)

    async def order() -> list[str]:
        tasks = {asyncio.create_task(sleep_a_second(), name=f"t{number}") for number in range(20)}
        return [task.get_name() for task in tasks]

    assert run_virtual(order()) == run_virtual(order())


def test_a_real_loop_is_refused() -> None:
    async def ask() -> None:
        virtual_loop()

    with pytest.raises(TypeError, match="run_virtual"):
        asyncio.run(ask())


def test_a_program_that_never_ends_is_an_error() -> None:
    async def forever() -> None:
        while True:  # noqa: ASYNC110  # there is nothing to wait for
            await asyncio.sleep(60)

    with pytest.raises(TimeLimitExceeded, match="7200 s"):
        run_virtual(forever())
    with pytest.raises(TimeLimitExceeded, match="9000 s"):
        run_virtual(forever(), 9_000)
