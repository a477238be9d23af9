"""Time and holds: slots share the work, and a hold has a floor per slot."""

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.tunery.plan.samples import SMOL
from tunery.plan.time import HOLD_FACTOR, HOLD_MS_MIN, eval_ms, hold_of, train_ms


@given(count=st.integers(1, 10**9), slots=st.integers(1, 32))
def test_more_slots_never_take_longer_and_more_tokens_never_shorter(count: int, slots: int) -> None:
    here = train_ms(SMOL, count, slots, "cpu")
    assert (
        train_ms(SMOL, count, slots + 1, "cpu") <= here <= train_ms(SMOL, count + 1, slots, "cpu")
    )
    assert eval_ms(SMOL, slots + 1, "cpu") <= eval_ms(SMOL, slots, "cpu")


def test_a_hold_has_a_floor_per_slot() -> None:
    assert hold_of(1, 2) == 2 * HOLD_MS_MIN
    assert hold_of(HOLD_MS_MIN, 1) == HOLD_FACTOR * HOLD_MS_MIN
