"""Training on pairs: equal to TRL's DPOTrainer, resumed to the byte, and with an effect."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
import torch

from schemas.training import LossType
from tests.unit.tunery.ml.trainings import figures, go, of, resumed
from tunery.ml.model import load_model
from tunery.ml.order import row_order
from tunery.ml.packed import PackedRows, read_rows
from tunery.ml.preferences import Preferences
from tunery.ml.reference import row_logps
from tunery.work.exits import ExitCode, WorkError
from tunery.work.spec import TrainSpec

pytestmark = [
    pytest.mark.train,
    pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning"),
]
STEPS_COMPARED = 20
CPU = torch.device("cpu")


def trl_trainer(
    spec: TrainSpec, rows: PackedRows, loss_type: str, folder: Path, steps: int = STEPS_COMPARED
) -> Any:
    """Plain TRL on the same pairs in the same order, with the same adapter."""
    from datasets import Dataset
    from transformers import AutoTokenizer
    from trl import DPOConfig, DPOTrainer

    class Tokenised(DPOTrainer):  # type: ignore[misc]  # trl is untyped
        """Takes token ids, and keeps to their order."""

        def _prepare_dataset(self, dataset: Any, *args: Any) -> Any:
            return dataset

        def _get_train_sampler(self, train_dataset: Any = None) -> Any:
            return torch.utils.data.SequentialSampler(self.train_dataset)

    order = [i for epoch in range(spec.hyper.n_epochs) for i in row_order(42, epoch, len(rows))]
    examples = [example for index in order for example in pairs_of(rows, index)]
    hyper = spec.hyper
    arguments = DPOConfig(
        output_dir=str(folder),
        per_device_train_batch_size=2 * hyper.batch_size * hyper.accumulation,
        max_steps=steps,
        learning_rate=hyper.learning_rate,
        lr_scheduler_type="constant",
        beta=hyper.beta,
        loss_type=loss_type,
        max_length=None,
        bf16=False,
        gradient_checkpointing=False,
        seed=hyper.seed,
        logging_steps=1,
        use_cpu=True,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    model = load_model(spec, spec.hyper, "fp32", CPU)
    return Tokenised(
        model=model,
        args=arguments,
        train_dataset=Dataset.from_list(examples),
        processing_class=AutoTokenizer.from_pretrained(spec.base_dir),
    )


def pairs_of(rows: PackedRows, index: int) -> list[dict[str, list[int]]]:
    row, examples, start = rows.rows[index], [], 0
    sides: list[tuple[list[int], int]] = []
    for length in row.lengths:
        is_label = row.is_label[start : start + length].tolist()
        sides.append((row.input_ids[start : start + length].tolist(), is_label.index(True)))
        start += length
    for (chosen, prompt), (rejected, _) in zip(sides[::2], sides[1::2], strict=True):
        examples.append(
            {
                "prompt_ids": chosen[:prompt],
                "chosen_ids": chosen[prompt:],
                "rejected_ids": rejected[prompt:],
            }
        )
    return examples


@pytest.mark.parametrize("loss_type", ["sigmoid", "ipo"])
@pytest.mark.filterwarnings("ignore")
def test_method_dpo_its_first_losses_are_those_of_trl(
    pairs_spec: TrainSpec, tmp_path: Path, loss_type: LossType
) -> None:
    hyper = msgspec.structs.replace(
        pairs_spec.hyper,
        loss_type=loss_type,
        n_epochs=10,
        scheduler="constant",
        max_steps=STEPS_COMPARED,
    )
    spec = msgspec.structs.replace(pairs_spec, hyper=hyper, valid_shards=())
    rows = read_rows(spec.train_shards, vocabulary=49_152)
    trainer = trl_trainer(spec, rows, loss_type, tmp_path / "trl")
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


@pytest.mark.filterwarnings("ignore")
def test_method_dpo_every_loss_is_that_of_trl(pairs_spec: TrainSpec, tmp_path: Path) -> None:
    """On an adapter whose first steps have moved every answer."""
    rows = read_rows(pairs_spec.train_shards, vocabulary=49_152)
    trainer = trl_trainer(pairs_spec, rows, "sigmoid", tmp_path / "trl", steps=3)
    trainer.train()
    model, first = trainer.model.eval(), range(4)
    batch = trainer.data_collator([e for index in first for e in pairs_of(rows, index)])
    with torch.no_grad(), model.disable_adapter():
        reference = torch.cat([row_logps(model, rows, i, CPU, packing=True) for i in first])
    known = PackedRows(rows.rows[:4]).with_reference(reference).batch(first)
    for loss_type in get_args(LossType):
        trainer.loss_types = [loss_type]
        with torch.no_grad():
            theirs = trainer.compute_loss(model, batch)
            ours = Preferences(0.1, loss_type, packing=True).score(model, known).losses.mean()
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
