"""Sequences of a session: drawn by their seed, ended by tokens or text, scored as a pass scores."""

from typing import Any

import pytest
import torch
from msgspec.structs import replace

from tests.unit.tunery.ml.test_rollouts import Words
from tests.unit.tunery.ml.trainings import tiny_mixture
from tunery.ml.sampling import bytes_of, sample, target_logprobs, tokens_of
from tunery.work.session import SampleBody

pytestmark = pytest.mark.train
BODY = SampleBody(
    prompt=bytes_of(torch.tensor([5, 6])),
    samples=3,
    tokens_max=6,
    temperature=1.0,
    top_p=1.0,
    top_k=-1,
    seed=42,
    stop_tokens=(),
)


def model() -> Any:
    torch.manual_seed(1)
    mixture = tiny_mixture(12)
    mixture.generation_config.eos_token_id = [1]
    return mixture


def tokens(body: SampleBody) -> list[list[int]]:
    cpu = torch.device("cpu")
    answer = sample(model(), Words(), body)
    return [tokens_of(sequence.tokens, cpu).tolist() for sequence in answer.sequences]


def test_a_sequence_follows_its_seed_and_its_number() -> None:
    first = tokens(BODY)
    assert tokens(replace(BODY, samples=2)) == first[:2]
    assert tokens(replace(BODY, seed=43)) != first
    assert [len(line) for line in first] == [6, 6, 6]
    greedy = tokens(replace(BODY, temperature=0.0))
    assert greedy[0] == greedy[1] == greedy[2]
    assert tokens(replace(BODY, top_k=1)) == greedy


def test_a_sequence_ends_with_what_ends_it() -> None:
    line = tokens(BODY)[0]
    end = line[2]
    at = line.index(end) + 1
    stopped = sample(model(), Words(), replace(BODY, samples=1, stop_tokens=(end,)))
    assert stopped.sequences[0].stopped
    assert stopped.sequences[0].tokens == bytes_of(torch.tensor(line[:at]))


def test_scores_are_those_of_a_pass_over_the_whole() -> None:
    mixture = model()
    answer = sample(mixture, Words(), replace(BODY, samples=1, prompt_logprobs=True))
    whole = tokens_of(BODY.prompt + answer.sequences[0].tokens, torch.device("cpu"))
    with torch.no_grad():
        (scored,) = target_logprobs(mixture, [(whole[:-1], whole[1:])])
    drawn = torch.frombuffer(bytearray(answer.sequences[0].logprobs), dtype=torch.float32)
    assert torch.equal(drawn, scored[1:])
    prompt = torch.frombuffer(bytearray(answer.prompt_logprobs), dtype=torch.float32)
    assert prompt.isnan().tolist() == [True, False]
