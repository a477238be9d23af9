"""One question over one connection: parts, an end, and what is no answer."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from services.gateway.serving_pools.engine_connection import ask_over
from services.gateway.web.domain.errors import ApiError
from tests.unit.services.gateway.chat.scripted_engine import HELLO, QUESTION
from tunery.platform.local_socket import listen_at
from tunery.work.engine import EngineReply, encode_line


@asynccontextmanager
async def saying(path: Path, *lines: bytes) -> AsyncIterator[None]:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.writelines(lines)
        if lines == (b"silence",):
            await reader.read()  # until the client has lost patience
        writer.close()

    async with await asyncio.start_unix_server(answer, sock=listen_at(path)):
        yield


async def asked(path: Path, silent_ms_max: int = 5_000) -> list[EngineReply]:
    reader, writer = await asyncio.open_unix_connection(str(path))
    return [reply async for reply in ask_over(reader, writer, QUESTION, silent_ms_max)]


async def test_the_parts_of_an_answer_up_to_its_end(tmp_path: Path) -> None:
    lines = [encode_line(reply) for reply in HELLO]
    async with saying(tmp_path / "s", *lines, b"never read\n"):
        assert await asked(tmp_path / "s") == list(HELLO)


@pytest.mark.parametrize("line", [b"", b"nonsense\n", b'{"type": "text"', b"silence"])
async def test_what_is_no_answer_is_an_engine_that_is_away(tmp_path: Path, line: bytes) -> None:
    async with saying(tmp_path / "s", line):
        with pytest.raises(ApiError) as refused:
            await asked(tmp_path / "s", 50)
    assert refused.value.status == 503
    assert int(refused.value.headers["retry-after"]) > 0
