"""Pauses grow, stay within three days, and honour what the receiver asks."""

from hypothesis import given
from hypothesis import strategies as st

from schemas.units import HOUR_MS
from services.notifier.domain.schedule import (
    ATTEMPTS_MAX,
    JITTER_PPM,
    PAUSES_MS,
    RETRY_AFTER_MS_MAX,
    pause_ms,
)

JITTER = st.integers(0, JITTER_PPM)


def test_all_attempts_fit_into_72_hours() -> None:
    assert 70 * HOUR_MS < sum(PAUSES_MS) <= 72 * HOUR_MS
    assert list(PAUSES_MS) == sorted(PAUSES_MS)


@given(st.integers(1, ATTEMPTS_MAX - 1), JITTER)
def test_jitter_shortens_by_a_tenth_at_most(attempt: int, jitter: int) -> None:
    pause = pause_ms(attempt, jitter)
    assert pause is not None
    full = PAUSES_MS[attempt - 1]
    assert full * 9 // 10 <= pause <= full


def test_the_last_attempt_is_the_last() -> None:
    assert pause_ms(ATTEMPTS_MAX, 0) is None
    assert pause_ms(ATTEMPTS_MAX + 5, 0, 1000) is None


@given(st.integers(0, 10**12))
def test_retry_after_is_honoured_within_a_limit(asked: int) -> None:
    pause = pause_ms(1, 0, asked)
    assert pause == max(PAUSES_MS[0], min(asked, RETRY_AFTER_MS_MAX))
