"""Retries with growing pauses, slept on the injected clock, so that simulated time holds here."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from schemas.units import Ms
from tunery.runtime.clock import Clock
from tunery.runtime.watchdog import beat

DOUBLINGS_MAX: Final = 16
T = TypeVar("T")


@dataclass(frozen=True)
class Backoff:
    """A schedule of pauses: `first_ms`, doubled after each further failure, up to `max_ms`."""

    first_ms: Ms
    max_ms: Ms

    def delay_ms(self, try_number: int) -> Ms:
        """The pause after the `try_number`-th failed try in a row, counted from 1."""
        return min(self.first_ms << min(try_number - 1, DOUBLINGS_MAX), self.max_ms)


def every(ms: Ms) -> Backoff:
    """A schedule whose pauses do not grow."""
    return Backoff(ms, ms)


def _ignore(_error: Exception, _try_number: int) -> None:
    """Ignore a failed try: the default of `on_failure`."""


async def retry(
    call: Callable[[], Awaitable[T]],
    errors: tuple[type[Exception], ...],
    *,
    clock: Clock,
    backoff: Backoff,
    tries_max: int | None = None,
    elapsed_ms_max: Ms | None = None,
    on_failure: Callable[[Exception, int], None] = _ignore,
) -> T:
    """Return the result of `call`, tried again after a pause when it raises one of `errors`.

    Without `tries_max` and `elapsed_ms_max` (since the first try began) it is tried for ever; with
    them the last error is raised. `on_failure` gets each error and the number of its try, from 1;
    what it raises ends the retries.
    """
    begun_ms, try_number = clock.monotonic_ms(), 0
    while True:
        try_number += 1
        beat("waiting")
        try:
            return await call()
        except errors as error:
            on_failure(error, try_number)
            if try_number == tries_max:
                raise
            if elapsed_ms_max is not None and clock.monotonic_ms() - begun_ms >= elapsed_ms_max:
                raise
        await clock.sleep(backoff.delay_ms(try_number))
