"""Steps of a training and the work between them. Engines: test_engines.py."""

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.unit.tunery.ml.trainings import STEPS, go, of, stop_after
from tunery.ml.loop import is_due, rate_factor
from tunery.work.exits import ExitCode
from tunery.work.spec import Scheduler, TrainSpec

pytestmark = [
    pytest.mark.train,
    pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning"),
]


def test_evaluations_and_checkpoints_come_as_often_as_asked(spec: TrainSpec) -> None:
    """Each after its step, and the checkpoint last: it holds what the evaluation showed."""
    hyper = replace(
        spec.hyper, eval_every_steps=2, scheduler="cosine", warmup=0.5, grad_norm_max=0.0
    )
    every = replace(spec, hyper=hyper, checkpoint_every_steps=4, checkpoint_each_epoch=True)
    _, events = go(every)
    said = [(e["type"], e["step"]) for e in events if e["type"] in ("step", "eval", "checkpoint")]
    evaluated = [step for kind, step in said if kind == "eval"]
    saved = [step for kind, step in said if kind == "checkpoint"]
    assert evaluated == [2, 3, 4, 6]  # three steps an epoch
    assert saved == [3, 4, 6]
    steps = of(events, "step")
    rates = [step["learning_rate"] for step in steps]
    assert 0 < rates[0] < rates[1] < max(rates) == pytest.approx(0.01)
    assert rates[-1] < rates[3]
    assert all(step["grad_norm"] > 0 for step in steps), "0 means measured, and not clipped"


def test_a_run_without_validation_rows_does_not_evaluate(spec: TrainSpec) -> None:
    _, events = go(replace(spec, valid_shards=(), checkpoint_every_steps=100))
    assert of(events, "eval") == []
    assert [event["step"] for event in of(events, "checkpoint")] == [STEPS]


def test_a_request_to_stop_is_a_checkpoint_and_the_end(spec: TrainSpec) -> None:
    code, events = go(replace(spec, checkpoint_every_steps=100), stop_after(3))
    assert code == ExitCode.PREEMPTED
    assert [event["step"] for event in of(events, "checkpoint")] == [3]
    assert len(of(events, "step")) == 3


SCHEDULERS: tuple[Scheduler, ...] = get_args(Scheduler)


def test_warm_up_climbs_in_equal_parts_and_the_rest_runs_down() -> None:
    factors = [rate_factor("linear", step, warmup=2, total=6) for step in range(7)]
    assert factors == pytest.approx([1 / 3, 2 / 3, 1, 3 / 4, 1 / 2, 1 / 4, 0])
    cosine = [rate_factor("cosine", step, warmup=0, total=4) for step in range(5)]
    assert cosine == pytest.approx([1, 0.853553, 0.5, 0.146447, 0], abs=1e-6)
    wsd = [rate_factor("wsd", step, warmup=1, total=20) for step in (0, 1, 17, 18, 19, 20)]
    assert wsd == pytest.approx([1 / 2, 1, 1, 1, 1 / 2, 0])
    assert {rate_factor("constant", step, warmup=0, total=4) for step in range(5)} == {1.0}


@given(
    scheduler=st.sampled_from(SCHEDULERS),
    total=st.integers(1, 500),
    share=st.floats(0, 0.9),
    at=st.floats(0, 1, exclude_max=True),
)
def test_no_step_has_a_learning_rate_of_zero(
    scheduler: Scheduler, total: int, share: float, at: float
) -> None:
    assert (
        0 < rate_factor(scheduler, int(at * total), warmup=round(share * total), total=total) <= 1
    )


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
