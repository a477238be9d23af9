"""The system's clock: integers of milliseconds."""

import time

from tunery.runtime.clock import SystemClock


def test_the_wall_clock_counts_milliseconds_since_the_epoch() -> None:
    before = time.time_ns() // 1_000_000
    now = SystemClock().now_ms()
    assert before <= now <= time.time_ns() // 1_000_000


def test_elapsed_time_never_goes_back() -> None:
    clock = SystemClock()
    moments = [clock.monotonic_ms() for _ in range(1_000)]
    assert moments == sorted(moments)
    assert all(type(moment) is int for moment in moments)


async def test_a_pause_of_zero_returns_at_once() -> None:
    clock = SystemClock()
    before = clock.monotonic_ms()
    await clock.sleep(0)
    assert clock.monotonic_ms() - before < 60_000
