"""A question and the parts of its answer over one connection to an engine."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Final

from msgspec import MsgspecError

from schemas.units import Ms
from services.gateway.web.domain.errors import unavailable
from tunery.work.engine import (
    AnswerEnded,
    EngineReply,
    Question,
    QuestionRefused,
    decode_reply,
    encode_line,
)

SILENT_MS_MAX: Final[Ms] = 50_000  # an engine gives a sign every few seconds
ENGINE: Final = "The engine that answers questions"
LOADING_RETRY_S: Final = 15


async def ask_over(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    question: Question,
    silent_ms_max: Ms = SILENT_MS_MAX,
) -> AsyncGenerator[EngineReply, None]:
    """The parts of one answer; the last one ends or refuses it. Raises ApiError 503.

    The connection is closed at the end, which stops an answer that is not complete.
    """
    async with closing(writer):
        try:
            writer.write(encode_line(question))
        except OSError as error:
            raise unavailable(ENGINE) from error
        while True:
            reply = await _next(reader, silent_ms_max)
            yield reply
            if isinstance(reply, AnswerEnded | QuestionRefused):
                return


@contextlib.asynccontextmanager
async def closing(writer: asyncio.StreamWriter) -> AsyncIterator[None]:
    """Close a connection at the end, even a broken one."""
    try:
        yield
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def _next(reader: asyncio.StreamReader, silent_ms_max: Ms) -> EngineReply:
    try:
        async with asyncio.timeout(silent_ms_max / 1_000):
            line = await reader.readuntil(b"\n")
        return decode_reply(line)
    except TimeoutError as error:
        raise unavailable(ENGINE, LOADING_RETRY_S) from error
    except (OSError, EOFError, ValueError, asyncio.LimitOverrunError, MsgspecError) as error:
        raise unavailable(ENGINE) from error
