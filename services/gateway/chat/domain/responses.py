"""Answers in OpenAI's shapes, complete or in chunks."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from pydantic import SerializerFunctionWrapHandler, model_serializer

from services.gateway.web.domain.responses import Response
from tunery.work.engine import AnswerEnded

FinishReason: TypeAlias = Literal["stop", "length", "tool_calls"]


class PromptTokensDetails(Response):
    cached_tokens: int


class CompletionUsage(Response):
    """Tokens of an answer. `cached_tokens`: how many of `prompt_tokens` were in memory from an
    earlier question.
    """

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails


class CalledFunction(Response):
    """A function call. `arguments`: JSON that the model wrote; nobody has checked it."""

    name: str
    arguments: str


class MessageToolCall(Response):
    id: str
    type: Literal["function"] = "function"
    function: CalledFunction


class DeltaToolCall(MessageToolCall):
    index: int


class AnswerMessage(Response):
    """Message of an answer. `content`: null where it has nothing but calls. `tool_calls`: left out
    where there are none.
    """

    role: Literal["assistant"] = "assistant"
    content: str | None
    refusal: None = None
    tool_calls: list[MessageToolCall] | None = None

    @model_serializer(mode="wrap")
    def _without_calls(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = dump(self)
        if fields["tool_calls"] is None:
            del fields["tool_calls"]
        return fields


class LikelyToken(Response):
    token: str
    logprob: float
    bytes: list[int] | None


class AnswerToken(LikelyToken):
    """A token of an answer. top_logprobs: tokens that might have been, the likeliest first."""

    top_logprobs: list[LikelyToken]


class AnswerLogprobs(Response):
    content: list[AnswerToken]
    refusal: None = None


class ChatChoice(Response):
    index: int
    message: AnswerMessage
    logprobs: AnswerLogprobs | None = None
    finish_reason: FinishReason


class ChatCompletion(Response):
    """`system_fingerprint` changes when the bytes of the base model do."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[ChatChoice]
    usage: CompletionUsage
    system_fingerprint: str


class Delta(Response):
    """Addition of a chunk to an answer; unchanged fields are omitted."""

    role: Literal["assistant"] | None = None
    content: str | None = None
    tool_calls: list[DeltaToolCall] | None = None

    @model_serializer(mode="wrap")
    def _without_none(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in dump(self).items() if value is not None}


class ChunkChoice(Response):
    index: int
    delta: Delta
    logprobs: AnswerLogprobs | None = None
    finish_reason: FinishReason | None = None


class ChatChunk(Response):
    id: str
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: int
    model: str
    choices: list[ChunkChoice]
    usage: CompletionUsage | None = None
    system_fingerprint: str


@dataclass(frozen=True)
class AnswerIdentity:
    """Fields that all chunks of an answer share. created: seconds since the epoch."""

    id: str
    created: int
    model: str
    system_fingerprint: str


@dataclass
class Answer:
    """One answer as far as it is known."""

    texts: list[str] = field(default_factory=list)
    logprobs: list[dict[str, Any]] = field(default_factory=list)
    ended: AnswerEnded | None = None


def completion(identity: AnswerIdentity, answers: Sequence[Answer]) -> ChatCompletion:
    """The response for answers that have ended."""
    choices = [
        ChatChoice(
            index=index,
            message=_message(identity, index, "".join(answer.texts), answer.ended),
            logprobs=logprobs_of(answer.logprobs),
            finish_reason=finish_reason(answer.ended),
        )
        for index, answer in enumerate(answers)
        if answer.ended is not None
    ]
    return ChatCompletion(
        **vars(identity), choices=choices, usage=usage_of([answer.ended for answer in answers])
    )


def _message(identity: AnswerIdentity, index: int, text: str, ended: AnswerEnded) -> AnswerMessage:
    calls = called(identity, index, ended)
    if not calls:
        return AnswerMessage(content=text)
    named = [MessageToolCall(id=call.id, function=call.function) for call in calls]
    return AnswerMessage(content=text or None, tool_calls=named)


def called(identity: AnswerIdentity, index: int, ended: AnswerEnded) -> list[DeltaToolCall]:
    """The calls that an answer ends with. index: of the answer, by which ids of calls differ."""
    prefix = f"call_{identity.id.rpartition('-')[2]}{index}"
    return [
        DeltaToolCall(
            id=f"{prefix}{number}",
            function=CalledFunction(name=call.name, arguments=call.arguments),
            index=number,
        )
        for number, call in enumerate(ended.tool_calls)
    ]


def chunk(
    identity: AnswerIdentity,
    index: int,
    delta: Delta,
    ended: AnswerEnded | None = None,
    logprobs: Sequence[dict[str, Any]] = (),
) -> ChatChunk:
    """A part of an answer; the last one is empty and says why the answer ended."""
    reason = None if ended is None else finish_reason(ended)
    choice = ChunkChoice(
        index=index, delta=delta, logprobs=logprobs_of(logprobs), finish_reason=reason
    )
    return ChatChunk(**vars(identity), choices=[choice])


def usage_chunk(identity: AnswerIdentity, ended: Sequence[AnswerEnded | None]) -> ChatChunk:
    return ChatChunk(**vars(identity), choices=[], usage=usage_of(ended))


def logprobs_of(tokens: Sequence[dict[str, Any]]) -> AnswerLogprobs | None:
    """Probabilities of tokens from the engine; None without any."""
    if not tokens:
        return None
    return AnswerLogprobs(content=[AnswerToken.model_validate(token) for token in tokens])


def finish_reason(ended: AnswerEnded) -> FinishReason:
    match ended.finish_reason:
        case "length" | "tool_calls" as reason:
            return reason
        case _:
            return "stop"


def usage_of(ended: Sequence[AnswerEnded | None], count: int | None = None) -> CompletionUsage:
    """Tokens of all answers; a question is counted once, as in OpenAI's API.

    count: of answers to one question; by default all of them are.
    """
    known = [answer for answer in ended if answer is not None]
    each = count or len(ended) or 1
    asked = [known[first : first + each] for first in range(0, len(known), each)]
    read = sum(max(answer.prompt_tokens for answer in answers) for answers in asked)
    written = sum(answer.completion_tokens for answer in known)
    return CompletionUsage(
        prompt_tokens=read,
        completion_tokens=written,
        total_tokens=read + written,
        prompt_tokens_details=PromptTokensDetails(
            cached_tokens=sum(answers[0].cached_tokens for answers in asked)
        ),
    )
