"""An answer as server-sent events."""

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import aclosing
from typing import Any

from services.gateway.chat.answering import Parts
from services.gateway.chat.domain.responses import AnswerIdentity, called, chunk, usage_of
from services.gateway.web.domain.errors import ApiError
from services.gateway.web.streams import DONE, frame
from tunery.work.engine import AnswerEnded, AnswerWaits, TextAdded


async def frames(
    identity: AnswerIdentity,
    parts: Parts,
    chunk_of: Callable[[int, TextAdded | AnswerEnded], dict[str, Any]],
    *,
    count: int,
    first: Iterable[dict[str, Any]] = (),
    with_usage: bool,
) -> AsyncIterator[bytes]:
    """A frame for each part. An error that comes after the first one is its own frame.

    count: of answers to one question. `usage` is there, and null but for the last frame, only where
    the client asks for it.
    """
    more: dict[str, Any] = {"usage": None} if with_usage else {}
    ended: dict[int, AnswerEnded] = {}
    written: dict[str, Any] = {}
    for written in first:
        yield frame(written | more)
    try:
        async with aclosing(parts):
            async for index, part in parts:
                if isinstance(part, AnswerWaits):
                    yield sign_of(part)
                    continue
                if isinstance(part, AnswerEnded):
                    ended[index] = part
                written = chunk_of(index, part)
                yield frame(written | more)
    except ApiError as error:
        yield frame(error.body().model_dump())
        return
    if with_usage:
        usage = usage_of(identity, [ended[index] for index in sorted(ended)], count)
        yield frame({**written, "choices": [], "usage": usage})
    yield DONE


def sign_of(part: AnswerWaits) -> bytes:
    """A comment that keeps the line open until the answer begins."""
    if part.loading:
        return b": loading the model\n\n"
    who = f"{part.ahead} of your questions" if part.ahead else "other answers"
    return f": {who} come first\n\n".encode()


def chat_frames(
    identity: AnswerIdentity, parts: Parts, *, count: int, with_usage: bool
) -> AsyncIterator[bytes]:
    """The frames of a chat: each answer begins with its role."""

    def chunk_of(index: int, part: TextAdded | AnswerEnded) -> dict[str, Any]:
        if isinstance(part, AnswerEnded):
            calls = called(identity, index, part)
            return chunk(
                identity, index, {"tool_calls": calls} if calls else {}, part.finish_reason
            )
        return chunk(identity, index, {"content": part.text}, logprobs=part.logprobs)

    role = {"role": "assistant", "content": ""}
    first = [chunk(identity, index, role) for index in range(count)]
    return frames(identity, parts, chunk_of, count=count, first=first, with_usage=with_usage)
