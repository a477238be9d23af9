"""Training on pairs: equal to TRL's DPOTrainer, resumed to the byte, and with an effect."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
import torch

from schemas.training import LossType, MethodName
from tests.unit.tunery.ml.trainings import figures, go, of, resumed
from tests.unit.tunery.ml.trl_trainers import CPU, STEPS_COMPARED, pairs_of, trl_trainer
from tunery.ml.packed import IGNORED, PackedRow, PackedRows, read_rows
from tunery.ml.preferences import Preferences, prompts_labelled
from tunery.ml.reference import row_logps
from tunery.work.exits import ExitCode, WorkError
from tunery.work.spec import TrainSpec

pytestmark = [
    pytest.mark.train,
    pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning"),
]
SMOOTHING = 0.1  # TRL's "sigmoid" knows none


@pytest.mark.parametrize(
    "own",
    [
        {"loss_type": "sigmoid"},
        {"method": "cpo"},
        *(
            pytest.param(own, marks=pytest.mark.soak)  # each loss itself is compared above
            for own in (
                {"loss_type": "ipo"},
                {"loss_type": "robust", "label_smoothing": 0.1},
                {"method": "simpo", "beta": 2.0, "gamma": 1.0, "label_smoothing": 0.1},
                {"method": "orpo"},
            )
        ),
    ],
    ids=lambda own: "-".join(word for word in own.values() if isinstance(word, str)),
)
@pytest.mark.filterwarnings("ignore")
def test_method_the_first_losses_are_those_of_trl(
    pairs_spec: TrainSpec, tmp_path: Path, own: dict[str, Any]
) -> None:
    hyper = msgspec.structs.replace(
        pairs_spec.hyper,
        **own,
        n_epochs=10,
        scheduler="constant",
        max_steps=STEPS_COMPARED,
    )
    spec = msgspec.structs.replace(pairs_spec, hyper=hyper, valid_shards=())
    rows = read_rows(spec.train_shards, vocabulary=49_152)
    trainer = trl_trainer(spec, rows, tmp_path / "trl")
    trainer.train()
    expected = [entry for entry in trainer.state.log_history if "loss" in entry]
    _, events = go(spec)
    steps = of(events, "step")
    assert len(steps) == len(expected) == STEPS_COMPARED
    for ours, theirs in zip(steps, expected, strict=True):
        scale = max(1.0, abs(theirs["loss"]))
        assert abs(ours["loss"] - theirs["loss"]) <= 1e-4 * scale, ours["step"]
        for name, of_trl in (
            ("reward_accuracy", "rewards/accuracies"),
            ("reward_margin", "rewards/margins"),
            ("reward_chosen", "rewards/chosen"),
            ("grad_norm", "grad_norm"),
        ):
            assert ours[name] == pytest.approx(theirs[of_trl], abs=1e-3), (name, ours["step"])


def test_method_dpo_the_preferred_answers_gain_and_a_resume_ends_in_the_same_bytes(
    pairs_spec: TrainSpec,
) -> None:
    code, whole = go(pairs_spec)
    steps, evaluations = of(whole, "step"), of(whole, "eval")
    assert code == ExitCode.FINISHED
    assert steps[0]["loss"] == pytest.approx(0.6931, abs=1e-4)
    assert steps[0]["reward_margin"] == pytest.approx(0, abs=1e-5)
    assert steps[-1]["reward_margin"] > 0.1
    assert steps[-1]["reward_accuracy"] == 1
    assert steps[-1]["loss"] < 0.65
    assert all(0 <= event["valid_reward_accuracy"] <= 1 for event in evaluations)
    checkpoints = of(whole, "checkpoint")
    for checkpoint in (checkpoints[0], checkpoints[2], checkpoints[-1]):
        step = checkpoint["step"]
        _, events = go(resumed(pairs_spec, checkpoint, out=f"again-{step}"))
        assert events[0]["resumed_from_step"] == step
        assert events[-1]["adapter_sha256"] == whole[-1]["adapter_sha256"]
        assert figures(of(events, "step")) == figures(steps[step:])


@pytest.mark.parametrize("method", ["simpo", "orpo", "cpo"])
def test_method_without_a_reference_the_margin_grows_and_a_resume_ends_in_the_same_bytes(
    pairs_spec: TrainSpec, method: MethodName
) -> None:
    hyper = msgspec.structs.replace(
        pairs_spec.hyper, method=method, beta=1.0, gamma=0.5, learning_rate=5e-3
    )
    spec = msgspec.structs.replace(pairs_spec, hyper=hyper)
    _, whole = go(spec)
    steps = of(whole, "step")
    assert steps[-1]["loss"] < steps[0]["loss"] - 0.1
    assert steps[-1]["reward_margin"] > steps[0]["reward_margin"] + 0.1
    assert not any("reference" in event["message"] for event in of(whole, "note"))
    checkpoint = of(whole, "checkpoint")[2]
    _, events = go(resumed(spec, checkpoint, out="again"))
    assert events[-1]["adapter_sha256"] == whole[-1]["adapter_sha256"]
    assert figures(of(events, "step")) == figures(steps[checkpoint["step"] :])


def test_method_orpo_padding_and_first_tokens_are_not_learnt(pairs_spec: TrainSpec) -> None:
    rows = read_rows(pairs_spec.train_shards, vocabulary=49_152)
    shorter = PackedRow(
        rows.rows[1].input_ids[:16], rows.rows[1].is_label[:16], (8, 8), roles=(1, 2)
    )
    batch = PackedRows([rows.rows[0], shorter]).batch([0, 1])
    labelled = prompts_labelled(batch)
    added = (labelled["labels"] != IGNORED) & (batch["labels"] == IGNORED)
    assert added.sum(dim=1).tolist() == [6, 3]  # three of the four tokens of each prompt
    assert sorted(set(labelled["sequences"][added].tolist())) == [6, 8, 10]


@pytest.mark.filterwarnings("ignore")
def test_method_dpo_every_loss_is_that_of_trl(pairs_spec: TrainSpec, tmp_path: Path) -> None:
    """On an adapter whose first steps have moved every answer."""
    rows = read_rows(pairs_spec.train_shards, vocabulary=49_152)
    hyper = msgspec.structs.replace(pairs_spec.hyper, label_smoothing=SMOOTHING)
    spec = msgspec.structs.replace(pairs_spec, hyper=hyper)
    trainer = trl_trainer(spec, rows, tmp_path / "trl", steps=3)
    trainer.train()
    model, first = trainer.model.eval(), range(4)
    batch = trainer.data_collator([e for index in first for e in pairs_of(rows, index)])
    with torch.no_grad(), model.disable_adapter():
        reference = torch.cat([row_logps(model, rows, i, CPU, packing=True) for i in first])
    known = PackedRows(rows.rows[:4]).with_reference(reference).batch(first)
    for loss_type in get_args(LossType):
        trainer.loss_types = [loss_type]
        objective = Preferences(0.1, loss_type, True, 0.0 if loss_type == "sigmoid" else SMOOTHING)
        with torch.no_grad():
            theirs = trainer.compute_loss(model, batch)
            ours = objective.score(model, known).losses.mean()
        assert float(ours) == pytest.approx(float(theirs), rel=1e-4), loss_type


def test_method_pairs_that_are_not_whole_are_named(
    make_shard: Callable[..., Path], documents: Callable[[int, int], list[list[list[int]]]]
) -> None:
    path = make_shard(documents(2, 3), pairs=True)
    with pytest.raises(WorkError, match="does not make pairs"):
        read_rows([str(path)], vocabulary=49_152)


def test_method_dpo_pairs_computed_one_by_one_have_the_same_losses(pairs_spec: TrainSpec) -> None:
    _, packed = go(pairs_spec)
    hyper = msgspec.structs.replace(pairs_spec.hyper, packing=False)
    _, alone = go(resumed(msgspec.structs.replace(pairs_spec, hyper=hyper), out="alone"))
    losses = [[event["loss"] for event in of(events, "step")] for events in (packed, alone)]
    assert losses[0] == pytest.approx(losses[1], abs=1e-5)
