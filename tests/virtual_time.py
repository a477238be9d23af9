"""Run a test on virtual time, so that no machine is too slow for its limits, and none waits."""

import time
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec
from unittest.mock import patch

from simulator.engine.virtual_loop import run_virtual, virtual_loop
from tunery.runtime.clock import SystemClock

Arguments = ParamSpec("Arguments")


def on_virtual_time(
    test: Callable[Arguments, Coroutine[Any, Any, None]],
) -> Callable[Arguments, None]:
    """Decorate a test of hosts in memory: its clock moves only while nothing is left to do."""

    @wraps(test)
    def run(*arguments: Arguments.args, **named: Arguments.kwargs) -> None:
        epoch_ms = time.time_ns() // 1_000_000

        def monotonic_ms(_: SystemClock) -> int:
            return int(virtual_loop().now_s * 1_000)

        def now_ms(clock: SystemClock) -> int:
            return epoch_ms + monotonic_ms(clock)

        with (
            patch.object(SystemClock, "monotonic_ms", monotonic_ms),
            patch.object(SystemClock, "now_ms", now_ms),
        ):
            run_virtual(test(*arguments, **named))

    return run
