"""Time and holds: slots share the work, and a hold has a floor per slot."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from simulator.control_plane.samples import HYPER
from tests.unit.tunery.plan.samples import SMOL
from tunery.plan.time import HOLD_FACTOR, HOLD_MS_MIN, eval_ms, hold_of, train_ms


@given(count=st.integers(1, 10**9), slots=st.integers(1, 32))
def test_more_slots_never_take_longer_and_more_tokens_never_shorter(count: int, slots: int) -> None:
    def train_on(tokens: int, slots: int) -> int:
        return train_ms(SMOL, HYPER, tokens, slots, "cpu")

    assert train_on(count, slots + 1) <= train_on(count, slots) <= train_on(count + 1, slots)
    assert eval_ms(SMOL, slots + 1, "cpu") <= eval_ms(SMOL, slots, "cpu")


@pytest.mark.parametrize(
    "slower",
    [
        {"recompute": True},
        {"packing": False},
        {"dora": True},
        {"adaptation": "qlora"},
        {"adaptation": "full"},
    ],
    ids=str,
)
def test_training_what_makes_a_step_slower_is_in_the_estimate(slower: dict[str, Any]) -> None:
    """Recompute and rows that are not packed were estimated as if they cost nothing."""
    usual = train_ms(SMOL, HYPER, 10**6, 1, "cpu")
    hyper = replace(HYPER, **slower)
    assert 1.1 < train_ms(SMOL, hyper, 10**6, 1, "cpu") / usual < 2
    both = replace(hyper, recompute=True, packing=False)
    assert train_ms(SMOL, both, 10**6, 1, "cpu") > train_ms(SMOL, hyper, 10**6, 1, "cpu")


def test_a_hold_has_a_floor_per_slot() -> None:
    assert hold_of(1, 2) == 2 * HOLD_MS_MIN
    assert hold_of(HOLD_MS_MIN, 1) == HOLD_FACTOR * HOLD_MS_MIN
