"""Choice of tokens, and several answers in turn."""

import pytest
import torch

from tests.bases import tiny_base
from tunery.ml.answers import AnswerWriter, choose, probabilities
from tunery.work.answers import (
    AbandonAnswer,
    DropModel,
    LoadModel,
    ModelReady,
    ModelUnloadable,
    ProcessReply,
    TokensEnded,
    TokenWritten,
    WriteAnswer,
)
from tunery.work.engine import Sampling

pytestmark = pytest.mark.train

LOGITS = torch.tensor([2.0, 1.9, 0.0, -5.0])
GREEDY = Sampling(temperature=0)


def drawn(sampling: Sampling, times: int = 200) -> set[int]:
    generator = torch.Generator().manual_seed(1)
    return {choose(LOGITS, sampling, {}, generator) for _ in range(times)}


def test_tokens_are_chosen_as_the_sampling_says() -> None:
    assert drawn(GREEDY) == {0}
    assert drawn(Sampling(top_p=0.4)) == {0}
    assert drawn(Sampling(top_p=0.9)) == {0, 1}
    assert drawn(Sampling(temperature=2.0), times=2_000) == {0, 1, 2, 3}


def test_penalties_count_what_the_answer_has() -> None:
    generator = torch.Generator()
    presence = Sampling(temperature=0, presence_penalty=0.2)
    assert choose(LOGITS, presence, {0: 1}, generator) == 1
    frequency = Sampling(temperature=0, frequency_penalty=0.04)
    assert choose(LOGITS, frequency, {0: 1}, generator) == 0
    assert choose(LOGITS, frequency, {0: 3}, generator) == 1


def test_probabilities_are_given_when_requested() -> None:
    assert probabilities(LOGITS, 0, GREEDY) == (None, ())
    logprob, likely = probabilities(LOGITS, 1, Sampling(top_logprobs=2))
    assert [token for token, _ in likely] == [0, 1]
    assert logprob == pytest.approx(likely[1][1])
    assert probabilities(LOGITS, 1, Sampling(top_logprobs=0))[1] == ()


def finish(writer: AnswerWriter) -> None:
    """Write all answers to their end."""
    while writer.busy:
        writer.write_tokens()


def test_an_answer_is_the_same_alone_and_beside_others() -> None:
    replies: list[ProcessReply] = []
    writer = AnswerWriter(replies.append)
    base = str(tiny_base().dir)
    writer.take(LoadModel(0, "base", base, None))
    writer.take(LoadModel(1, "broken", base, "/none"))
    assert isinstance(replies[0], ModelReady)
    assert isinstance(replies[1], ModelUnloadable)

    def tokens_of(number: int) -> list[int]:
        written = (reply for reply in replies if isinstance(reply, TokenWritten))
        return [reply.token for reply in written if reply.number == number]

    for number in (2, 3, 4):
        writer.take(WriteAnswer(number, "base", (1, 2, 3 + number % 2), GREEDY, 6))
    writer.write_tokens()
    writer.take(AbandonAnswer(4))
    finish(writer)
    writer.take(WriteAnswer(5, "base", (1, 2, 3), GREEDY, 6))
    finish(writer)
    assert tokens_of(5) == tokens_of(2) != []
    assert len(tokens_of(4)) <= 1
    ended = [reply for reply in replies if isinstance(reply, TokensEnded)]
    assert {reply.number for reply in ended} == {2, 3, 5}
    writer.take(DropModel(6, "base"))
    with pytest.raises(KeyError):
        writer.take(WriteAnswer(7, "base", (1,), GREEDY, 1))
