"""The gateway's side of the socket when the engine is away. With one: the tests of its host."""

import asyncio
from pathlib import Path

import pytest

from services.gateway.chat.engine_socket import SocketEngine
from services.gateway.web.errors import ApiError
from tests.unit.services.gateway.chat.scripted_engine import QUESTION
from tunery.work.engine import TextAdded


async def test_without_an_engine_the_answer_is_503(tmp_path: Path) -> None:
    with pytest.raises(ApiError) as away:
        await anext(SocketEngine(tmp_path / "engine.sock").ask(QUESTION))
    assert away.value.status == 503
    assert away.value.headers["retry-after"]


async def test_an_engine_that_dies_in_an_answer_gives_503(tmp_path: Path) -> None:
    async def die(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'{"type": "text", "text": "on"}\n')
        await writer.drain()
        writer.close()

    server = await asyncio.start_unix_server(die, tmp_path / "engine.sock")
    async with server:
        answering = SocketEngine(tmp_path / "engine.sock").ask(QUESTION)
        assert await anext(answering) == TextAdded("on")
        with pytest.raises(ApiError) as away:
            await anext(answering)
    assert away.value.status == 503


async def test_an_engine_that_says_nothing_gives_503(tmp_path: Path) -> None:
    released = asyncio.Event()

    async def say_nothing(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await released.wait()
        writer.close()

    server = await asyncio.start_unix_server(say_nothing, tmp_path / "engine.sock")
    async with server:
        with pytest.raises(ApiError) as away:
            await anext(SocketEngine(tmp_path / "engine.sock", silent_ms_max=20).ask(QUESTION))
        released.set()
    assert away.value.status == 503
