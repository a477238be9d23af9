"""The gateway's side of the socket when the engine is away. With one: the tests of its host."""

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from schemas.training import BlobFile
from services.gateway.chat.engine_socket import SocketEngine
from services.gateway.web.domain.errors import ApiError
from tests.unit.services.gateway.chat.scripted_engine import QUESTION
from tunery.platform.blobs.frames import PathKey
from tunery.platform.blobs.path_keys import TenantPathKeys
from tunery.platform.seal.memory import MemoryKeyStore
from tunery.platform.seal.sealer import Sealer
from tunery.work.engine import AnswerEnded, Question, TextAdded, decode_question, encode_line


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


async def test_security_a_question_brings_keys_of_its_adapter_alone(tmp_path: Path) -> None:
    asked: list[Question] = []

    async def note(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(decode_question(await reader.readuntil(b"\n")))
        writer.write(encode_line(AnswerEnded("stop", 1, 1)))
        await writer.drain()
        writer.close()

    keys, blob = MemoryKeyStore(), "t/acme/models/m/adapter"
    keys.get("acme")
    keys.rotate("acme")
    file = BlobFile(name="adapter_model.safetensors", blob=blob, sha256="ab" * 32, bytes=1)
    question = replace(QUESTION, model=replace(QUESTION.model, adapter=(file,)))
    server = await asyncio.start_unix_server(note, tmp_path / "engine.sock")
    async with server:
        engine = SocketEngine(tmp_path / "engine.sock", seal=Sealer(keys))
        for with_adapter in (question, QUESTION):
            assert [reply async for reply in engine.ask(with_adapter)]
    first, second = asked
    assert [key.blob for key in first.keys] == [blob] * 4, (
        "of both versions of the data key, in both forms"
    )
    handed = [PathKey(key.version, key.secret) for key in first.keys]
    assert handed == [*TenantPathKeys(keys).all("acme", blob)]
    assert second.keys == ()
