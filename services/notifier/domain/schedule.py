"""When a delivery is tried again: eleven attempts within 72 hours, longer pauses each time."""

from typing import Final

from schemas.units import HOUR_MS, Ms

MINUTE_MS: Final = 60_000
PAUSES_MS: Final[tuple[Ms, ...]] = (
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
ATTEMPTS_MAX: Final = len(PAUSES_MS) + 1
JITTER_PPM: Final = 100_000  # pauses are shortened by up to a tenth, so that retries spread
PPM: Final = 1_000_000
RETRY_AFTER_MS_MAX: Final = 6 * HOUR_MS


def pause_ms(
    attempt: int, jitter_ppm: int, asked_ms: Ms | None = None, attempts_max: int = ATTEMPTS_MAX
) -> Ms | None:
    """Pause after the `attempt`-th attempt (from 1) has failed; None when it was the last.

    jitter_ppm: random, in [0, JITTER_PPM]. asked_ms: what the receiver's Retry-After says.
    """
    if attempt >= attempts_max:
        return None
    pause = PAUSES_MS[attempt - 1]
    pause -= pause * jitter_ppm // PPM
    return max(pause, min(asked_ms or 0, RETRY_AFTER_MS_MAX))
