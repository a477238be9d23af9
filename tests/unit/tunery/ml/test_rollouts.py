"""Answers that are drawn by seed."""

import pytest
import torch
from torch import Tensor

from tests.unit.tunery.ml.trainings import tiny_mixture
from tunery.graders.grader import StringCheck
from tunery.ml.rollouts import Prompt, Rollouts, SeededNoise, rollouts_of, seeds_of
from tunery.work.exits import WorkError

pytestmark = pytest.mark.train
PROMPT = Prompt(torch.tensor([5, 6]), b'{"a": 1}')


class Words:
    """A tokenizer of which each token is a word."""

    pad_token_id = 0
    eos_token_id = 1

    def batch_decode(self, lines: Tensor, *, skip_special_tokens: bool) -> list[str]:
        return [
            self.decode(tuple(line), skip_special_tokens=skip_special_tokens)
            for line in lines.tolist()
        ]

    def decode(self, ids: tuple[int, ...], *, skip_special_tokens: bool) -> str:
        return " ".join(str(token) for token in ids if token > 1 or not skip_special_tokens)


def test_an_answer_follows_its_seed_alone_and_ends_at_its_end() -> None:
    torch.manual_seed(1)
    model = tiny_mixture(12)
    model.generation_config.eos_token_id = [1]
    rollouts = Rollouts(Words(), StringCheck("n", "like", "{{sample.output_text}}", "7"), 9)
    seeds = seeds_of(42, 3, PROMPT, 6)
    group = rollouts.group(model, PROMPT, seeds, 1.0)
    alone = [rollouts.group(model, PROMPT, [seed], 1.0).completions[0] for seed in seeds]
    assert list(group.completions) == alone
    assert len(set(alone)) > 1
    assert all(1 not in ids[:-1] and (ids[-1] == 1 or len(ids) == 9) for ids in alone)
    assert group.rewards.tolist() == [float(7 in ids) for ids in alone]
    drawn = [rollouts.group(model, PROMPT, [seed], 1e-3).rewards for seed in seeds[:2]]
    likeliest = rollouts.rewards(model, [PROMPT, PROMPT])
    assert likeliest.tolist() == [float(reward) for reward in drawn], "nothing is drawn"


def test_seeds_differ_by_training_step_prompt_and_answer() -> None:
    other = Prompt(PROMPT.ids, b'{"a": 2}')
    drawn = [seeds_of(42, 1, PROMPT, 2), seeds_of(42, 2, PROMPT, 2), seeds_of(43, 1, PROMPT, 2)]
    seeds = {seed for group in (*drawn, seeds_of(42, 1, other, 2)) for seed in group}
    assert len(seeds) == 8
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert seeds_of(42, 1, PROMPT, 2) == drawn[0]


def test_noise_draws_tokens_by_their_likelihood() -> None:
    logits = torch.tensor([[0.0, 2.0]]).repeat(4_000, 1)
    picked = SeededNoise(range(4_000), 2.0, torch.device("cpu"))(logits, logits).argmax(-1)
    assert float(picked.float().mean()) == pytest.approx(0.731, abs=0.03)


def test_a_job_without_its_grader_says_so() -> None:
    with pytest.raises(WorkError, match="was deleted with its tenant's key"):
        rollouts_of(None, Words(), 9)
