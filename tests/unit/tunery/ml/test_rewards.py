"""Reward models: equal to TRL's RewardTrainer, resumed to the byte, and with an effect."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import torch

from schemas.training import Adaptation, Precision
from tests.unit.tunery.ml.trainings import figures, go, of, resumed, stop_after
from tests.unit.tunery.ml.trl_trainers import CPU, STEPS_COMPARED, trl_trainer
from tunery.ml.merging import merge
from tunery.ml.model import load_model
from tunery.ml.packed import read_rows
from tunery.ml.rewards import Rewards, answer_rewards
from tunery.ml.state import load_adapter
from tunery.work.exits import ExitCode, WorkError
from tunery.work.spec import TrainSpec

pytestmark = [
    pytest.mark.train,
    pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning"),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("center", [0.0, 0.5])
def test_method_reward_the_first_losses_are_those_of_trl(
    reward_spec: TrainSpec, tmp_path: Path, center: float
) -> None:
    hyper = msgspec.structs.replace(
        reward_spec.hyper,
        n_epochs=10,
        scheduler="constant",
        max_steps=STEPS_COMPARED,
        center_rewards=center,
    )
    spec = msgspec.structs.replace(reward_spec, hyper=hyper, valid_shards=())
    rows = read_rows(spec.train_shards, vocabulary=49_152)
    trainer = trl_trainer(spec, rows, tmp_path / "trl")
    trainer.train()
    expected = [entry for entry in trainer.state.log_history if "loss" in entry]
    _, events = go(spec)
    steps = of(events, "step")
    assert len(steps) == len(expected) == STEPS_COMPARED
    for ours, theirs in zip(steps, expected, strict=True):
        assert abs(ours["loss"] - theirs["loss"]) <= 1e-4, ours["step"]
        assert abs(ours["reward_margin"] - theirs["margin"]) <= 1e-3
        assert ours["reward_accuracy"] == pytest.approx(theirs["accuracy"])


def ruled(rows: int, first: int) -> list[list[list[int]]]:
    """Pairs whose preferred answer has one word, and the other one another, to any prompt."""
    return [
        [
            [300 + 7 * number, 301 + 11 * number, word, word + number % 3]
            for number in (first + 2 * row, first + 2 * row + 1)
            for word in (500, 600)
        ]
        for row in range(rows)
    ]


@pytest.mark.parametrize(
    ("precision", "adaptation"), [("fp32", "lora"), ("bf16", "lora"), ("bf16", "qlora")]
)
def test_method_reward_pairs_are_ranked_and_a_resume_ends_in_the_same_bytes(
    reward_spec: TrainSpec,
    make_shard: Callable[..., Path],
    precision: Precision,
    adaptation: Adaptation,
) -> None:
    hyper = msgspec.structs.replace(
        reward_spec.hyper, n_epochs=4, learning_rate=3e-3, adaptation=adaptation
    )
    spec = msgspec.structs.replace(
        reward_spec,
        hyper=hyper,
        precision=precision,
        train_shards=(str(make_shard(ruled(8, 0), "ruled", pairs=True)),),
        valid_shards=(str(make_shard(ruled(4, 50), "valid-ruled", pairs=True)),),
    )
    _, whole = go(spec)
    steps = of(whole, "step")
    assert steps[-1]["loss"] < 0.5 * steps[0]["loss"]
    assert of(whole, "eval")[-1]["valid_loss"] < 0.5
    assert steps[-1]["reward_margin"] > steps[0]["reward_margin"]
    assert of(whole, "eval")[-1]["valid_reward_accuracy"] == 1.0
    code, stopped = go(spec, stop_after(5))
    assert code == ExitCode.PREEMPTED
    _, rest = go(resumed(spec, of(stopped, "checkpoint")[-1], out="again"))
    assert figures(of(rest, "step")) == figures(steps)[-len(of(rest, "step")) :]
    last, again = (of(events, "finished")[0] for events in (whole, rest))
    assert again["adapter_sha256"] == last["adapter_sha256"]


@pytest.mark.filterwarnings("ignore")
def test_method_reward_the_adapter_loads_as_a_model_for_classification(
    reward_spec: TrainSpec,
) -> None:
    """As the libraries of others load it: with the head, and the same rewards."""
    from peft import PeftConfig, PeftModel
    from transformers import AutoModelForSequenceClassification

    _, events = go(reward_spec)
    folder = of(events, "finished")[0]["adapter_dir"]
    config = PeftConfig.from_pretrained(folder)
    assert (config.task_type, list(config.modules_to_save)) == ("SEQ_CLS", ["score"])
    base = AutoModelForSequenceClassification.from_pretrained(
        reward_spec.base_dir, num_labels=1, dtype=torch.float32
    )
    base.config.pad_token_id = 0
    theirs = PeftModel.from_pretrained(base, folder).eval()
    ours = load_model(reward_spec, reward_spec.hyper, "fp32", CPU)
    load_adapter(Path(folder), ours)
    rows = read_rows(reward_spec.train_shards, vocabulary=49_152)
    with torch.no_grad():
        rewards = answer_rewards(ours.eval(), rows.batch([0]), packing=True)
        texts = torch.split(rows.rows[0].input_ids.long(), list(rows.rows[0].lengths))
        alone = [float(theirs(input_ids=text[None]).logits[0, 0]) for text in texts]
    assert rewards.tolist() == pytest.approx(alone, abs=1e-4)
    target = Path(folder).with_name("merged")
    with pytest.raises(WorkError, match="merged into its base it would lose its head"):
        merge(Path(folder), Path(reward_spec.base_dir), target, "float32")
    assert not target.exists()


def test_method_reward_pairs_computed_one_by_one_have_the_same_rewards(
    reward_spec: TrainSpec,
) -> None:
    rows = read_rows(reward_spec.train_shards, vocabulary=49_152)
    model = load_model(reward_spec, reward_spec.hyper, "fp32", CPU).eval()
    batch = rows.batch(range(len(rows)))  # rows of several lengths: some are padded
    with torch.no_grad():
        together, alone = (
            answer_rewards(model, batch, packing=packing) for packing in (True, False)
        )
    assert together.tolist() == pytest.approx(alone.tolist(), abs=1e-5)
    assert len(together) == rows.n_sequences
    assert Rewards(packing=True).count(batch) == rows.n_sequences // 2


def test_method_reward_needs_pairs(spec: TrainSpec) -> None:
    hyper = msgspec.structs.replace(spec.hyper, method="reward")
    with pytest.raises(WorkError, match="learns from pairs, not from answers"):
        go(msgspec.structs.replace(spec, hyper=hyper))
