"""Training on answers with labels: equal to TRL's KTOTrainer, resumed to the byte."""

from pathlib import Path

import msgspec
import pytest
import torch

from tests.unit.tunery.ml.trainings import figures, go, of, resumed
from tests.unit.tunery.ml.trl_trainers import STEPS_COMPARED, trl_trainer
from tunery.ml.packed import PackedRow, PackedRows, read_rows
from tunery.work.spec import TrainSpec

pytestmark = [
    pytest.mark.train,
    pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning"),
]


@pytest.mark.filterwarnings("ignore")
def test_method_kto_its_first_losses_are_those_of_trl(
    labels_spec: TrainSpec, tmp_path: Path
) -> None:
    hyper = msgspec.structs.replace(
        labels_spec.hyper,
        undesirable=1.5,
        n_epochs=10,
        scheduler="constant",
        max_steps=STEPS_COMPARED,
    )
    spec = msgspec.structs.replace(labels_spec, hyper=hyper, valid_shards=())
    rows = read_rows(spec.train_shards, vocabulary=49_152)
    trainer = trl_trainer(spec, rows, tmp_path / "trl")
    trainer.train()
    expected = [entry for entry in trainer.state.log_history if "loss" in entry]
    assert any(entry["kl"] > 0 for entry in expected), "the estimate counts"
    _, events = go(spec)
    steps = of(events, "step")
    assert len(steps) == len(expected) == STEPS_COMPARED
    for ours, theirs in zip(steps, expected, strict=True):
        assert ours["loss"] == pytest.approx(theirs["loss"], abs=1e-4), ours["step"]
        for name, of_trl in (
            ("reward_chosen", "rewards/chosen"),
            ("reward_rejected", "rewards/rejected"),
            ("grad_norm", "grad_norm"),
        ):
            assert ours[name] == pytest.approx(theirs[of_trl], abs=1e-3), (name, ours["step"])


def test_method_kto_wanted_answers_gain_and_a_resume_ends_in_the_same_bytes(
    labels_spec: TrainSpec,
) -> None:
    _, whole = go(labels_spec)
    steps = of(whole, "step")
    assert steps[0]["loss"] == pytest.approx(0.5, abs=1e-4)
    assert steps[-1]["reward_margin"] > 0.1
    assert steps[-1]["loss"] < 0.49
    assert all(0 <= event["valid_reward_accuracy"] <= 1 for event in of(whole, "eval"))
    checkpoint = of(whole, "checkpoint")[2]
    _, events = go(resumed(labels_spec, checkpoint, out="again"))
    assert events[-1]["adapter_sha256"] == whole[-1]["adapter_sha256"]
    assert figures(of(events, "step")) == figures(steps[checkpoint["step"] :])


def test_method_kto_another_division_of_a_step_has_the_same_losses(labels_spec: TrainSpec) -> None:
    losses = []
    for batch, parts, packing in ((1, 2, True), (2, 1, True), (2, 1, False)):
        hyper = msgspec.structs.replace(
            labels_spec.hyper, batch_size=batch, accumulation=parts, packing=packing
        )
        spec = msgspec.structs.replace(labels_spec, hyper=hyper)
        _, events = go(resumed(spec, out=f"{batch}-{packing}"))
        losses.append([event["loss"] for event in of(events, "step")])
    assert losses[0] == pytest.approx(losses[1], abs=1e-5)
    assert losses[0] == pytest.approx(losses[2], abs=1e-5)


def test_method_kto_each_prompt_gets_the_answer_before_it() -> None:
    ids = torch.tensor([1, 2, 10, 3, 4, 5, 20, 21, 6, 30], dtype=torch.int32)
    is_label = ids >= 10
    row = PackedRow(ids, is_label, (3, 5, 2), roles=(3, 4, 3))
    other = row.mismatched()
    assert other.input_ids.tolist() == [1, 2, 30, 3, 4, 5, 10, 6, 20, 21]
    assert other.lengths == (3, 4, 3)
    assert (other.input_ids[other.is_label] >= 10).all()
    alone = PackedRow(ids[:3], is_label[:3], (3,), roles=(3,))
    batch = PackedRows([row, alone]).batch([0, 1])
    assert batch["lines"].tolist() == [0, 0, 0, 1]
    assert batch["mismatched_input_ids"].shape == batch["input_ids"].shape
