"""An answer as server-sent events."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

import msgspec

from services.gateway.chat.responses import AnswerIdentity, ChatChunk, Delta, chunk, usage_chunk
from services.gateway.web.errors import ApiError
from services.gateway.web.streams import DONE
from tunery.work.engine import AnswerEnded, TextAdded


async def frames(
    identity: AnswerIdentity,
    parts: AsyncGenerator[tuple[int, TextAdded | AnswerEnded], None],
    *,
    count: int,
    with_usage: bool,
) -> AsyncIterator[bytes]:
    """A frame for each part. An error that comes after the first one is a frame of its own."""
    ended: dict[int, AnswerEnded] = {}
    for index in range(count):
        yield frame(chunk(identity, index, Delta(role="assistant", content="")), with_usage)
    try:
        async with aclosing(parts):
            async for index, part in parts:
                if isinstance(part, TextAdded):
                    delta = Delta(content=part.text)
                    added = chunk(identity, index, delta, logprobs=part.logprobs)
                    yield frame(added, with_usage)
                else:
                    ended[index] = part
                    yield frame(chunk(identity, index, Delta(), part), with_usage)
    except ApiError as error:
        yield b"data: " + error.body().model_dump_json().encode() + b"\n\n"
        return
    if with_usage:
        yield frame(usage_chunk(identity, [ended[index] for index in sorted(ended)]), with_usage)
    yield DONE


def frame(response: ChatChunk, with_usage: bool) -> bytes:
    """`usage` is there, and null but for the last frame, only where the client asks for it."""
    fields = response.model_dump(exclude=None if with_usage else {"usage"})
    for choice in fields["choices"]:
        choice["delta"] = {
            name: value for name, value in choice["delta"].items() if value is not None
        }
    return b"data: " + msgspec.json.encode(fields) + b"\n\n"
