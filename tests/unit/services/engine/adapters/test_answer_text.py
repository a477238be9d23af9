"""Text of tokens as they come: whole characters, and nothing of a stop text."""

from collections.abc import Sequence
from typing import Any

import pytest

from services.engine.adapters.answer_text import AnswerStream, AnswerText, logprob_of, token_logprob
from tunery.work.engine import AnswerEnded, Reply, Spent, TextAdded

PIECES = [b"Hel", b"lo", b" w\xc3", b"\xb6rld", b" END", b" more"]


def decode(ids: Sequence[int]) -> str:
    return b"".join(PIECES[number] for number in ids).decode("utf-8", "replace")


def texts_of(ids: Sequence[int], *stop: str) -> tuple[list[str], AnswerText]:
    text = AnswerText(decode, stop)
    parts = []
    for number in ids:
        text.add(number)
        parts.append(text.take(complete=text.stopped)[0])
        if text.stopped:
            return parts, text
    parts.append(text.take(complete=True)[0])
    return parts, text


def test_a_character_is_sent_when_it_is_complete() -> None:
    assert texts_of(range(6))[0] == ["Hel", "lo", "", " wörld", " END", " more", ""]
    assert texts_of([0, 2])[0] == ["Hel", "", " w\N{REPLACEMENT CHARACTER}"]


@pytest.mark.parametrize(
    "stop",
    [
        ("lo w",),
        ("END",),
        ("world",),
        ("lo!", "rld E"),
    ],
)
def test_no_part_of_a_stop_text_is_sent(stop: tuple[str, ...]) -> None:
    said, answer = texts_of(range(6), *stop)
    whole = decode(range(6))
    ends = [whole.find(text) for text in stop if text in whole]
    assert "".join(said) == (whole[: min(ends)] if ends else whole)
    assert answer.stopped is bool(ends)


def test_tokens_have_their_probabilities_with_their_text() -> None:
    def entry(number: int) -> dict[str, Any]:
        return {"token": decode([number])}

    text = AnswerText(decode, ("END",))
    seen: list[dict[str, Any]] = []
    for number in range(5):
        text.add(number, entry(number))
        seen += text.take(complete=text.stopped)[1]
    assert seen == [entry(number) for number in range(4)]


def test_a_probability_has_the_form_of_openai() -> None:
    assert logprob_of("ö", -1.5) == {"token": "ö", "logprob": -1.5, "bytes": [195, 182]}
    logprob = token_logprob("a", -1.0, [("a", -1.0), ("b", -2.0)])
    assert [likely["token"] for likely in logprob["top_logprobs"]] == ["a", "b"]


def stream_of(parts_max: int, *stop: str) -> tuple[AnswerStream, list[Reply]]:
    replies: list[Reply] = []

    def say(reply: Reply) -> bool:
        replies.append(reply)
        return len(replies) < parts_max

    return AnswerStream(AnswerText(decode, stop), 7, say), replies


def test_an_answer_is_sent_until_it_stops() -> None:
    stream, replies = stream_of(9, " END")
    assert [stream.add(number) for number in range(5)] == [True] * 4 + [False]
    texts = [("Hel", 1), ("lo", 2), (" wörld", 4)]
    said = [TextAdded(text, spent=Spent(7, 0, written)) for text, written in texts]
    assert replies == [*said, AnswerEnded("stop", 7, 5)]


def test_an_answer_ends_with_its_tokens_or_its_client() -> None:
    stream, replies = stream_of(9)
    stream.add(0)
    stream.end("length", 1, cached_tokens=2)
    assert replies[-1] == AnswerEnded("length", 7, 1, 2)
    stream, replies = stream_of(1)
    assert not stream.add(0)
    assert len(replies) == 1
