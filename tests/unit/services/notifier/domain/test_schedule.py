"""Pauses grow and stay within three days."""

from hypothesis import given
from hypothesis import strategies as st

from schemas.units import HOUR_MS
from services.notifier.domain.schedule import DELAYS_MS, JITTER_PPM, TRIES_MAX, delay_ms

JITTER = st.integers(0, JITTER_PPM)


def test_all_tries_fit_into_72_hours() -> None:
    assert 70 * HOUR_MS < sum(DELAYS_MS) <= 72 * HOUR_MS
    assert list(DELAYS_MS) == sorted(DELAYS_MS)


@given(st.integers(1, TRIES_MAX - 1), JITTER)
def test_jitter_shortens_by_a_tenth_at_most(try_number: int, jitter: int) -> None:
    full = DELAYS_MS[try_number - 1]
    assert full * 9 // 10 <= delay_ms(try_number, jitter) <= full
