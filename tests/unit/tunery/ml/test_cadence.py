"""When a checkpoint is due: by steps, by time, and by what the last one cost."""

from hypothesis import given
from hypothesis import strategies as st

from tunery.ml.cadence import is_due

EVERY_STEPS, EVERY_S, SHARE = 20, 600.0, 0.02


def due(step: int, unsaved_s: float, cost_s: float, share: float = SHARE) -> bool:
    return is_due(
        step,
        unsaved_s=unsaved_s,
        cost_s=cost_s,
        every_steps=EVERY_STEPS,
        every_s=EVERY_S,
        share_max=share,
    )


def test_a_checkpoint_that_costs_more_than_its_share_waits() -> None:
    """A checkpoint of an 8B base took 2 to 3 s, every 10 to 20 s."""
    assert not due(40, unsaved_s=10, cost_s=2.5)
    assert not due(40, unsaved_s=122, cost_s=2.5)
    assert due(40, unsaved_s=123, cost_s=2.5)
    assert not due(41, unsaved_s=123, cost_s=2.5), "only at every 20th step"


def test_a_share_of_zero_waits_for_nothing() -> None:
    assert due(40, unsaved_s=0.1, cost_s=60, share=0)
    assert not due(41, unsaved_s=0.1, cost_s=60, share=0)


def test_the_first_checkpoint_shows_what_one_costs() -> None:
    assert due(20, unsaved_s=0, cost_s=0)


def test_ten_minutes_are_not_exceeded_whatever_it_costs() -> None:
    assert due(41, unsaved_s=600, cost_s=60)
    assert not due(41, unsaved_s=599, cost_s=60)


@given(
    step_s=st.floats(0.01, 60),
    cost_s=st.floats(0.01, 11),
    share=st.floats(0.02, 0.5),
    steps=st.integers(20, 2_000),
)
def test_training_checkpoints_take_no_more_than_their_share(
    step_s: float, cost_s: float, share: float, steps: int
) -> None:
    """The cost of the first checkpoint is unknown; the maximum interval bounds the work at risk."""
    unsaved_s, known_s = 0.0, 0.0
    for step in range(1, steps + 1):
        unsaved_s += step_s
        if not due(step, unsaved_s, known_s, share):
            assert unsaved_s < EVERY_S
            continue
        if known_s:
            assert cost_s <= share * (unsaved_s + cost_s) * (1 + 1e-9)
        unsaved_s, known_s = 0.0, cost_s
    assert known_s, "a training of 20 steps has a checkpoint"
