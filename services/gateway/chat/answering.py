"""Several answers to one question at the same time, and errors for refusals."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Final, TypeAlias

from msgspec.structs import replace

from schemas import errors
from services.gateway.chat.domain.responses import Answer
from services.gateway.ports import ChatEngine
from services.gateway.web.domain.errors import INVALID, RATE_LIMIT, ApiError, unavailable
from tunery.work.engine import (
    BUSY,
    MALFORMED,
    STALE_BASE,
    TENANT_BUSY,
    TOO_LONG,
    UNSUPPORTED,
    AnswerEnded,
    AnswerWaits,
    EngineReply,
    Question,
    QuestionRefused,
    TextAdded,
)

AT_ONCE_MAX: Final = 8  # of the answers to one request
QUEUE_POSITION: Final = "x-tunery-queue-position"
PARTS_AHEAD_MAX: Final = 64  # that are kept for a client that reads slowly
#: code of a refusal → status and code of the error, and the field that is wrong
REFUSALS: Final[Mapping[str, tuple[int, str, str | None]]] = {
    TOO_LONG: (400, "context_length_exceeded", "messages"),
    MALFORMED: (400, INVALID, None),
    UNSUPPORTED: (400, "model_not_servable", "model"),
    STALE_BASE: (409, errors.BASE_CHANGED, "model"),
}


def questions(question: Question, count: int) -> list[Question]:
    """The question for each answer; each has its own seed, made of the one that is given.

    The question's own tokens are counted with the first.
    """
    return [_numbered(question, index) for index in range(count)]


def _numbered(question: Question, index: int) -> Question:
    sampling, asker = question.sampling, question.asker
    if sampling.seed is not None:
        sampling = replace(sampling, seed=sampling.seed + index)
    if asker is not None:
        asker = replace(asker, first=index == 0)
    return replace(question, sampling=sampling, asker=asker)


Part: TypeAlias = AnswerWaits | TextAdded | AnswerEnded
Parts: TypeAlias = AsyncGenerator[tuple[int, Part], None]


async def answer(engine: ChatEngine, asked: Sequence[Question]) -> Parts:
    """Parts of all answers as they come, each with the number of its question; some are asked at a
    time.

    Raises ApiError when one is refused; the others are then given up.
    """
    parts: asyncio.Queue[tuple[int, EngineReply | Exception]] = asyncio.Queue(PARTS_AHEAD_MAX)
    limit = asyncio.Semaphore(AT_ONCE_MAX)

    async def follow(index: int, question: Question) -> None:
        try:
            async with limit, aclosing(engine.ask(question)) as replies:
                async for reply in replies:
                    await parts.put((index, reply))
        except Exception as error:  # raised where the parts are read
            await parts.put((index, error))

    following = [
        asyncio.create_task(follow(index, question), name="answer")
        for index, question in enumerate(asked)
    ]
    try:
        unfinished = len(asked)
        while unfinished:
            index, part = await parts.get()
            if isinstance(part, Exception):
                raise part
            if isinstance(part, QuestionRefused):
                raise refusal(part)
            yield index, part
            unfinished -= isinstance(part, AnswerEnded)
    finally:
        for task in following:
            task.cancel()
        await asyncio.gather(*following, return_exceptions=True)


async def first_of(parts: Parts) -> tuple[Parts, dict[str, str]]:
    """Wait for the first part, then return all parts, and headers of the response.

    A sign that the answer waits is a part, too: headers are sent, one of which says where it stands
    among the tenant's own questions, and the line is kept alive. Raises ApiError if an error comes
    first.
    """
    first = await anext(parts)
    waits = first[1] if isinstance(first[1], AnswerWaits) else None
    headers = {} if waits is None else {QUEUE_POSITION: str(waits.ahead + 1)}

    async def again() -> Parts:
        async with aclosing(parts):
            yield first
            async for part in parts:
                yield part

    return again(), headers


async def complete(parts: Parts, count: int) -> list[Answer]:
    """All answers, once they have ended. Raises ApiError."""
    answers = [Answer() for _ in range(count)]
    async for index, part in parts:
        if isinstance(part, TextAdded):
            answers[index].texts.append(part.text)
            answers[index].logprobs.extend(part.logprobs)
        elif isinstance(part, AnswerEnded):
            answers[index].ended = part
    return answers


async def one_call(parts: Parts) -> Parts:
    """The parts of answers that call one tool at most."""
    async with aclosing(parts):
        async for index, part in parts:
            if isinstance(part, AnswerEnded):
                yield index, replace(part, tool_calls=part.tool_calls[:1])
            else:
                yield index, part


def refusal(refused: QuestionRefused) -> ApiError:
    """The error for a question that the engine does not answer."""
    if refused.code in REFUSALS:
        status, code, param = REFUSALS[refused.code]
        return ApiError(status, code, refused.message, param)
    if refused.code == TENANT_BUSY:
        headers = {"retry-after": str(refused.retry_s or 1), "x-should-retry": "true"}
        return ApiError(429, RATE_LIMIT, refused.message, headers=headers)
    error = unavailable("The engine", *(() if refused.retry_s is None else (refused.retry_s,)))
    code = "engine_busy" if refused.code == BUSY else "engine_failed"
    return ApiError(error.status, code, refused.message, headers=error.headers)
