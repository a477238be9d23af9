"""Training on graded answers: equal to TRL's GRPOTrainer, rewarded, resumed to the byte."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from transformers import AutoTokenizer

from tests.score_models import judging, likes, relayed
from tests.unit.tunery.ml.test_model_scores import JUDGE
from tests.unit.tunery.ml.trainings import figures, go, of, resumed
from tests.unit.tunery.ml.trl_trainers import STEPS_COMPARED, grpo_trainer
from tunery.ml.methods import objective_of
from tunery.ml.model import load_model
from tunery.ml.model_scores import FILE
from tunery.ml.packed import read_rows
from tunery.ml.reinforcement import advantages, answers_batch
from tunery.ml.rollouts import AnswerGroup, Prompt, Rollouts
from tunery.work.exits import WorkError
from tunery.work.spec import TrainSpec

pytestmark = [
    pytest.mark.train,
    pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning"),
]


@pytest.mark.filterwarnings("ignore")
def test_method_reinforcement_its_first_losses_are_those_of_trl(
    prompts_spec: TrainSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TRL is given the answers that were written here."""
    hyper = msgspec.structs.replace(
        prompts_spec.hyper,
        n_epochs=10,
        scheduler="constant",
        max_steps=STEPS_COMPARED,
        temperature=1.3,
    )
    spec = msgspec.structs.replace(prompts_spec, hyper=hyper, valid_shards=())
    groups: list[AnswerGroup] = []
    write = Rollouts.group

    def record(self: Rollouts, *args: Any) -> AnswerGroup:
        groups.append(write(self, *args))
        return groups[-1]

    monkeypatch.setattr(Rollouts, "group", record)
    _, events = go(spec)
    steps = of(events, "step")
    tried = 2  # prompts of the row that is tried before the first step
    trainer = grpo_trainer(spec, groups[tried:], tmp_path / "trl")
    trainer.train()
    expected = [entry for entry in trainer.state.log_history if "loss" in entry]
    assert len(steps) == len(expected) == STEPS_COMPARED
    assert len({step["loss"] for step in steps}) > STEPS_COMPARED / 2
    for ours, theirs in zip(steps, expected, strict=True):
        assert ours["loss"] == pytest.approx(theirs["loss"], abs=1e-4), ours["step"]
        assert ours["grad_norm"] == pytest.approx(theirs["grad_norm"], rel=1e-2), ours["step"]
        assert ours["reward"] == pytest.approx(theirs["reward"], abs=1e-6)


def test_method_reinforcement_the_reward_rises_and_a_resume_ends_in_the_same_bytes(
    prompts_spec: TrainSpec, make_shard: Callable[..., Path]
) -> None:
    prompts = [[[300 + 7 * number + at for at in range(5)]] for number in range(2)]
    shard = make_shard(prompts, "two", item=b'{"word": "eeeeeeeeeeeeeeee"}')
    hyper = msgspec.structs.replace(
        prompts_spec.hyper,
        n_epochs=8,  # of a step each
        learning_rate=0.05,
        scheduler="constant",
        beta=0.001,
        num_generations=8,
        max_completion_length=3,
        temperature=0.25,
    )
    spec = msgspec.structs.replace(
        prompts_spec, hyper=hyper, train_shards=(str(shard),), keep_checkpoints=8
    )
    _, whole = go(spec)
    steps = of(whole, "step")
    assert steps[-1]["reward"] > 2 * steps[0]["reward"] > 0
    assert all(step["reward_std"] >= 0 and 1 <= step["completion_tokens"] <= 3 for step in steps)
    assert all(0 <= event["valid_loss"] <= 1 for event in of(whole, "eval"))
    checkpoint = of(whole, "checkpoint")[3]
    _, events = go(resumed(spec, checkpoint, out="again"))
    assert events[-1]["adapter_sha256"] == whole[-1]["adapter_sha256"]
    assert figures(of(events, "step")) == figures(steps[checkpoint["step"] :])


def test_method_reinforcement_a_model_scores_and_a_resume_ends_in_the_same_bytes(
    prompts_spec: TrainSpec, tmp_path: Path
) -> None:
    grader = {**JUDGE, "input": [{"role": "user", "content": "{{sample.output_text}}"}]}
    with judging(likes("e")) as judge, relayed(judge.endpoint(), grader, tmp_path) as path:
        spec = msgspec.structs.replace(
            prompts_spec, grader=msgspec.json.encode(grader).decode(), score_socket=str(path)
        )
        _, whole = go(spec)
        checkpoint = of(whole, "checkpoint")[1]
        kept = json.loads((Path(checkpoint["dir"]) / FILE).read_bytes())
        _, events = go(resumed(spec, checkpoint, out="again"))
    steps = of(whole, "step")
    assert any(step["reward"] > 0 for step in steps)
    assert kept
    assert len(kept) < len(judge.asked)
    assert events[-1]["adapter_sha256"] == whole[-1]["adapter_sha256"]
    assert figures(of(events, "step")) == figures(steps[checkpoint["step"] :])
    last, again = (of(every, "checkpoint")[-1]["manifest_sha256"] for every in (whole, events))
    assert last == again, "what models said is part of it"
    with pytest.raises(WorkError, match="this process cannot ask models"):
        go(msgspec.structs.replace(resumed(spec, out="alone"), score_socket=None))


def test_method_reinforcement_another_division_of_a_step_has_the_same_losses(
    prompts_spec: TrainSpec,
) -> None:
    losses = []
    for batch, parts in ((1, 2), (2, 1)):
        hyper = msgspec.structs.replace(prompts_spec.hyper, batch_size=batch, accumulation=parts)
        _, events = go(resumed(msgspec.structs.replace(prompts_spec, hyper=hyper), out=f"{batch}"))
        losses.append([event["loss"] for event in of(events, "step")])
    assert losses[0] == pytest.approx(losses[1], abs=1e-5)


def test_method_reinforcement_another_grader_is_another_run(prompts_spec: TrainSpec) -> None:
    _, whole = go(prompts_spec)
    assert prompts_spec.grader is not None
    other = msgspec.structs.replace(
        prompts_spec, grader=prompts_spec.grader.replace("word", "name")
    )
    _, events = go(resumed(other, of(whole, "checkpoint")[-1], out="other"))
    assert "it belongs to another run: grader" in of(events, "started")[0]["skipped"][0]["reason"]
    assert {step["reward"] for step in of(events, "step")} == {0.0}, "rows have no such field"


def test_first_hour2_u17_a_training_that_teaches_nothing_ends_if_its_tenant_wants_that(
    prompts_spec: TrainSpec,
) -> None:
    """Its rewards were all 0, and it "succeeded"."""
    assert prompts_spec.grader is not None
    grader = prompts_spec.grader.replace("word", "name")
    hyper = msgspec.structs.replace(prompts_spec.hyper, stop_if_nothing_learnt=True)
    with pytest.raises(WorkError, match="nothing is learnt: the rewards of all answers") as caught:
        go(msgspec.structs.replace(prompts_spec, grader=grader, hyper=hyper))
    assert caught.value.cause == "nothing_learnt"
    rewarded = msgspec.structs.replace(
        prompts_spec, hyper=hyper, out_dir=f"{prompts_spec.out_dir}-2"
    )
    _, events = go(rewarded)
    assert [event["steps"] for event in of(events, "finished")] == [len(of(events, "step"))]


def test_method_reinforcement_few_prompts_are_answered_to_validate(
    prompts_spec: TrainSpec, make_shard: Callable[..., Path]
) -> None:
    shard = make_shard([[[400 + row, 5, 6]] * 9 for row in range(6)], "many", item=b'{"word": ""}')
    rows = read_rows([str(shard)], vocabulary=49_152)
    assert (rows.kind, len(rows.sample(32))) == ("prompts", 4)
    model = load_model(prompts_spec, prompts_spec.hyper, "fp32", torch.device("cpu"))
    tokenizer = AutoTokenizer.from_pretrained(prompts_spec.base_dir)
    hyper = msgspec.structs.replace(prompts_spec.hyper, max_completion_length=1)
    learnt = objective_of(
        hyper, rows, packing=True, grader=prompts_spec.grader, tokenizer=tokenizer
    )
    scored = learnt.score(model.eval(), rows.batch([0]))
    assert (learnt.count(rows.batch([0])), len(scored.losses)) == (36, 8)
    assert scored.losses.tolist() == [1.0] * 8, "no word is like none"


def test_method_reinforcement_equal_rewards_teach_nothing() -> None:
    assert advantages(torch.tensor([0.5, 0.5])).tolist() == [0, 0]
    better, worse = advantages(torch.tensor([1.0, 0.0])).tolist()
    assert better == -worse == pytest.approx(0.7070, abs=1e-4)


def test_method_reinforcement_answers_follow_their_prompt_and_are_padded() -> None:
    prompt = Prompt(torch.tensor([5, 6]), b"{}")
    batch = answers_batch(AnswerGroup(prompt, ((7, 8, 9), (7,)), torch.tensor([1.0, 0.0])))
    assert batch["input_ids"].tolist() == [[5, 6, 7, 8, 9], [5, 6, 7, 0, 0]]
    assert batch["labels"].tolist() == [[-100, -100, 7, 8, 9], [-100, -100, 7, -100, -100]]
    assert batch["numbers"].tolist() == [0, 0, 0, 1]
