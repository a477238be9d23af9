"""Answers in OpenAI's shapes, complete or in chunks."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from schemas.billing import PriceBook
from tunery.billing.answers import AnswersOfMonth, answer_charge
from tunery.work.engine import AnswerEnded

#: fields of a token in OpenAI's API; engines have more
LIKELY_TOKEN: Final = ("token", "logprob", "bytes")


@dataclass(frozen=True)
class AnswerIdentity:
    """Fields that all chunks of an answer share."""

    id: str
    created: int  # seconds since the epoch
    model: str
    system_fingerprint: str  # changes when the bytes of the base model do
    book: PriceBook | None = None  # the tenant's prices, where tokens of answers have any

    @property
    def shared(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "book"}


@dataclass
class Answer:
    """One answer as far as it is known."""

    texts: list[str] = field(default_factory=list)
    logprobs: list[dict[str, Any]] = field(default_factory=list)
    ended: AnswerEnded | None = None


def completion(identity: AnswerIdentity, answers: Sequence[Answer]) -> dict[str, Any]:
    """The response for answers that have ended."""
    choices = [
        {
            "index": index,
            "message": _message(identity, index, "".join(answer.texts), answer.ended),
            "logprobs": logprobs_of(answer.logprobs),
            "finish_reason": answer.ended.finish_reason,
        }
        for index, answer in enumerate(answers)
        if answer.ended is not None
    ]
    usage = usage_of(identity, [answer.ended for answer in answers])
    return {**identity.shared, "object": "chat.completion", "choices": choices, "usage": usage}


def _message(identity: AnswerIdentity, index: int, text: str, ended: AnswerEnded) -> dict[str, Any]:
    """The message of an answer, whose `content` is null where there is nothing but calls."""
    message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None}
    if calls := called(identity, index, ended):
        for call in calls:
            del call["index"]
        message |= {"content": text or None, "tool_calls": calls}
    return message


def called(identity: AnswerIdentity, index: int, ended: AnswerEnded) -> list[dict[str, Any]]:
    """The calls that an answer ends with, as chunks have them. Their arguments are what the model
    wrote.

    index: of the answer, by which ids of calls differ
    """
    prefix = f"call_{identity.id.rpartition('-')[2]}{index}"
    return [
        {
            "id": f"{prefix}{number}",
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
            "index": number,
        }
        for number, call in enumerate(ended.tool_calls)
    ]


def chunk(
    identity: AnswerIdentity,
    index: int,
    delta: dict[str, Any],
    finish_reason: str | None = None,
    logprobs: Sequence[dict[str, Any]] = (),
) -> dict[str, Any]:
    """A part of an answer; the last one says why the answer ended."""
    choice = {
        "index": index,
        "delta": delta,
        "logprobs": logprobs_of(logprobs),
        "finish_reason": finish_reason,
    }
    return {**identity.shared, "object": "chat.completion.chunk", "choices": [choice]}


def logprobs_of(tokens: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """Probabilities of tokens from the engine; None without any."""
    if not tokens:
        return None
    content = [
        {**_likely(token), "top_logprobs": [_likely(other) for other in token["top_logprobs"]]}
        for token in tokens
    ]
    return {"content": content, "refusal": None}


def _likely(token: dict[str, Any]) -> dict[str, Any]:
    return {name: token[name] for name in LIKELY_TOKEN}


def usage_of(
    identity: AnswerIdentity, ended: Sequence[AnswerEnded | None], count: int | None = None
) -> dict[str, Any]:
    """Tokens of all answers; a question is counted once, as in OpenAI's API. Where they have a
    price, `price` is what they cost; an invoice rounds the sum of a month once.

    count: of answers to one question; by default all of them are.
    """
    known = [answer for answer in ended if answer is not None]
    each = count or len(ended) or 1
    asked = [known[first : first + each] for first in range(0, len(known), each)]
    read = sum(max(answer.prompt_tokens for answer in answers) for answers in asked)
    written = sum(answer.completion_tokens for answer in known)
    cached = sum(answers[0].cached_tokens for answers in asked)
    usage: dict[str, Any] = {
        "prompt_tokens": read,
        "completion_tokens": written,
        "total_tokens": read + written,
        # how many of them were in memory from an earlier question
        "prompt_tokens_details": {"cached_tokens": cached},
    }
    book = identity.book
    if book is not None:
        use = AnswersOfMonth(
            price_version=book.version,
            prompt_tokens=read,
            cached_tokens=cached,
            completion_tokens=written,
        )
        charge = answer_charge(use, {book.version: book})
        cost = 0 if charge is None else charge.amount_micro
        usage["price"] = {"amount_micro": cost, "currency": book.currency}
    return usage
