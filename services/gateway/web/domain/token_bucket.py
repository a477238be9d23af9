"""The token bucket as one number (GCRA): the moment at which the bucket will be full again.

A bucket holds `limit` requests and refills evenly over its window. Source: the generic cell rate
algorithm of ITU-T I.371, in the form of virtual scheduling.
"""

from dataclasses import dataclass
from typing import Final

from schemas.units import Ms

MINUTE_US: Final = 60_000_000
PER_MINUTE_MAX: Final = 1_000_000  # that a key may have


@dataclass(frozen=True)
class Allowance:
    """The result of taking one token. Times are milliseconds from now, rounded up."""

    limit: int
    remaining: int
    reset_ms: Ms  # time until the bucket is full
    retry_ms: Ms  # time until the next token; 0 if it was taken

    @property
    def allowed(self) -> bool:
        return self.retry_ms == 0


def take(
    full_at_us: int, now_us: int, limit: int, window_us: int = MINUTE_US
) -> tuple[int, Allowance]:
    """The bucket after an attempt to take a token, and the result of that."""
    each_us = window_us // limit
    before = max(full_at_us, now_us)
    after = before + each_us
    late_us = after - now_us - each_us * limit
    if late_us > 0:
        return before, answer(limit, before - now_us, late_us, window_us)
    return after, answer(limit, after - now_us, 0, window_us)


def answer(limit: int, until_full_us: int, late_us: int, window_us: int = MINUTE_US) -> Allowance:
    each_us = window_us // limit
    return Allowance(
        limit=limit,
        remaining=max(0, (each_us * limit - until_full_us) // each_us),
        reset_ms=-(-until_full_us // 1_000),
        retry_ms=-(-late_us // 1_000),
    )


def duration(ms: Ms) -> str:
    """A duration in the format of OpenAI's headers: `12ms`, `1s`, `1.5s`, `6m0s`."""
    if ms < 1_000:
        return f"{ms}ms"
    minutes, rest = divmod(ms, 60_000)
    seconds = f"{rest / 1_000:.3f}".rstrip("0").rstrip(".")
    return f"{minutes}m{seconds}s" if minutes else f"{seconds}s"
