from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from msgspec.structs import replace
from torch.nn import Parameter

from tests.unit.tunery.ml.runs import a_run
from tests.unit.tunery.ml.trainings import HYPER, STEPS

pytestmark = pytest.mark.train


def after(run: Any, step: int) -> tuple[bool, bool, bool]:
    """Whether it evaluates, saves and stops after a step."""
    from transformers import TrainerControl

    from tunery.ml.adamw import AdapterAdamW
    from tunery.ml.boundary import Boundary
    from tunery.ml.saving import Saver

    weights = {"a": Parameter(torch.ones(1))}
    saver = Saver(run, AdapterAdamW(weights, rate=1.0, weight_decay=0.0))
    control, boundary = TrainerControl(), Boundary(run, saver)
    boundary.on_step_begin(None, None, control)
    boundary.on_step_end(None, SimpleNamespace(global_step=step), control)
    assert run.step_s >= 0
    return control.should_evaluate, control.should_save, control.should_training_stop


def test_an_epoch_ends_with_an_evaluation_and_the_run_with_a_checkpoint(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    assert [after(run, step) for step in (1, 2, 3)] == [
        (False, False, False), (False, False, False), (True, False, False),
    ]  # fmt: skip
    assert after(run, STEPS) == (True, True, False)


def test_a_run_without_validation_rows_does_not_evaluate(tmp_path: Path) -> None:
    assert after(a_run(tmp_path, validates=False), 3) == (False, False, False)


def test_a_request_to_stop_is_a_checkpoint_and_the_end(tmp_path: Path) -> None:
    assert after(a_run(tmp_path, must_stop=lambda: True), 2) == (False, True, True)


def test_evaluations_and_checkpoints_come_as_often_as_asked(tmp_path: Path) -> None:
    run = a_run(tmp_path, replace(HYPER, eval_every_steps=2), every_steps=4, each_epoch=True)
    assert [after(run, step)[:2] for step in (1, 2, 3, 4)] == [
        (False, False), (True, False), (True, True), (True, True),
    ]  # fmt: skip
