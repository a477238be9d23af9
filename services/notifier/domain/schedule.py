"""When a delivery is tried again: eleven tries within 72 hours, longer pauses each time."""

from typing import Final

from schemas.units import HOUR_MS, PPM, Ms

MINUTE_MS: Final = 60_000
DELAYS_MS: Final[tuple[Ms, ...]] = (
    5_000,
    MINUTE_MS,
    5 * MINUTE_MS,
    30 * MINUTE_MS,
    2 * HOUR_MS,
    5 * HOUR_MS,
    10 * HOUR_MS,
    14 * HOUR_MS,
    20 * HOUR_MS,
    20 * HOUR_MS,
)
TRIES_MAX: Final = len(DELAYS_MS) + 1
JITTER_PPM: Final = 100_000  # pauses are shortened by up to a tenth, so that retries spread
RETRY_AFTER_MS_MAX: Final = 6 * HOUR_MS  # of the pause that a receiver asks for


def delay_ms(try_number: int, jitter_ppm: int) -> Ms:
    """The pause after the `try_number`-th try (from 1, below TRIES_MAX) has failed.

    jitter_ppm: random, in [0, JITTER_PPM]: by how much the pause is shortened.
    """
    delay = DELAYS_MS[try_number - 1]
    return delay - delay * jitter_ppm // PPM
