"""An answer as server-sent events."""

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import aclosing
from typing import TypeAlias

from services.gateway.chat.answering import Parts
from services.gateway.chat.domain.responses import AnswerIdentity, Delta, called, chunk, usage_chunk
from services.gateway.web.domain.errors import ApiError
from services.gateway.web.domain.responses import Response
from services.gateway.web.streams import DONE, frame
from tunery.work.engine import AnswerEnded, AnswerWaits, TextAdded

ChunkOf: TypeAlias = Callable[[int, TextAdded | AnswerEnded], Response]
UsageOf: TypeAlias = Callable[[Sequence[AnswerEnded]], Response]


async def frames(
    parts: Parts,
    chunk_of: ChunkOf,
    usage_of: UsageOf,
    *,
    first: Iterable[Response] = (),
    with_usage: bool,
) -> AsyncIterator[bytes]:
    """A frame for each part. An error that comes after the first one is its own frame.

    `usage` is there, and null but for the last frame, only where the client asks for it.
    """
    without = None if with_usage else {"usage"}
    ended: dict[int, AnswerEnded] = {}
    for response in first:
        yield frame(response.model_dump(exclude=without))
    try:
        async with aclosing(parts):
            async for index, part in parts:
                if isinstance(part, AnswerWaits):
                    yield sign_of(part)
                    continue
                if isinstance(part, AnswerEnded):
                    ended[index] = part
                yield frame(chunk_of(index, part).model_dump(exclude=without))
    except ApiError as error:
        yield frame(error.body().model_dump())
        return
    if with_usage:
        yield frame(usage_of([ended[index] for index in sorted(ended)]).model_dump())
    yield DONE


def sign_of(part: AnswerWaits) -> bytes:
    """A comment that keeps the line open until the answer begins."""
    return b": loading the model\n\n" if part.loading else b": other answers come first\n\n"


def chat_frames(
    identity: AnswerIdentity, parts: Parts, *, count: int, with_usage: bool
) -> AsyncIterator[bytes]:
    """The frames of a chat: each answer begins with its role."""

    def chunk_of(index: int, part: TextAdded | AnswerEnded) -> Response:
        if isinstance(part, AnswerEnded):
            return chunk(
                identity, index, Delta(tool_calls=called(identity, index, part) or None), part
            )
        return chunk(identity, index, Delta(content=part.text), logprobs=part.logprobs)

    return frames(
        parts,
        chunk_of,
        lambda ended: usage_chunk(identity, ended),
        first=[
            chunk(identity, index, Delta(role="assistant", content="")) for index in range(count)
        ],
        with_usage=with_usage,
    )
