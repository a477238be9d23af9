"""Steps of a training and the work between them. Engines: test_engines.py."""

import pytest
from msgspec.structs import replace

from tests.unit.tunery.ml.trainings import STEPS, go, of, stop_after
from tunery.work.exits import ExitCode
from tunery.work.spec import TrainSpec

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
