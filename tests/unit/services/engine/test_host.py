"""Questions over the socket, with the gateway's side of it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from services.engine import host as hosts
from services.engine.host import EngineHost, QuestionLimits
from services.engine.loaded_models import LoadedModels
from services.engine.meter import AnswerMeter
from services.gateway.chat.engine_socket import SocketEngine
from tests.unit.services.engine.memory_engine import BROKEN, FOREVER, MemoryEngine, question
from tunery.platform.answer_files import uses_of
from tunery.platform.blobs.frames import PathKey
from tunery.platform.blobs.path_keys import HandedPathKeys
from tunery.platform.local_socket import connect_to
from tunery.work.engine import (
    BUSY,
    FAILED,
    MALFORMED,
    TENANT_BUSY,
    AnswerEnded,
    AnswerWaits,
    Asker,
    BlobKey,
    EngineReply,
    Question,
    QuestionRefused,
    Spent,
    TextAdded,
    decode_reply,
    encode_line,
)

LIMITS = QuestionLimits(tenant_max=1)


@asynccontextmanager
async def serving(
    folder: Path, limits: QuestionLimits = LIMITS, answers_max: int = 4
) -> AsyncIterator[tuple[SocketEngine, MemoryEngine]]:
    engine = MemoryEngine()
    models = LoadedModels(engine, engine, models_max=2, answers_max=answers_max)
    host = EngineHost(models, folder / "engine.sock", AnswerMeter(folder / "answers"), limits)
    running = asyncio.create_task(host.run())
    await host.ready()
    try:
        yield SocketEngine(folder / "engine.sock"), engine
    finally:
        running.cancel()
        await asyncio.wait((running,))


async def said(engine: SocketEngine, asked: Question) -> list[EngineReply]:
    return [reply async for reply in engine.ask(asked)]


async def test_the_parts_of_an_answer_come_in_order(tmp_path: Path) -> None:
    async with serving(tmp_path) as (client, _):
        replies = await said(client, question("a", "one two"))
    assert replies == [
        TextAdded("one", spent=Spent(2, 0, 1)),
        TextAdded("two", spent=Spent(2, 0, 2)),
        AnswerEnded("stop", 2, 2),
    ]


async def test_an_answer_is_counted_before_it_is_sent(tmp_path: Path) -> None:
    asked = replace(question("a", FOREVER), asker=Asker("acme", "key_1", "tiny"))
    async with serving(tmp_path) as (client, engine):
        answering = client.ask(asked)
        parts = [await anext(answering) for _ in range(3)]
        await answering.aclose()
        assert await asyncio.to_thread(engine.loaded[0][1].stopped.wait, 5)
    meter = AnswerMeter(tmp_path / "answers")
    (use,) = [use for path in meter.closed_files() for use in uses_of(path)["acme"]]
    last = parts[-1]
    assert isinstance(last, TextAdded)
    assert use.completion_tokens >= last.spent.completion_tokens == 3
    assert (use.requests, use.prompt_tokens) == (1, 1)


async def test_a_refusal_names_its_reason(tmp_path: Path) -> None:
    async with serving(tmp_path) as (client, _):
        replies = await said(client, question(BROKEN))
    assert replies == [QuestionRefused(FAILED, "its files cannot be read")]


async def test_what_is_no_question_is_refused(tmp_path: Path) -> None:
    async with serving(tmp_path):
        connection = connect_to(tmp_path / "engine.sock")
        connection.setblocking(False)
        reader, writer = await asyncio.open_unix_connection(sock=connection)
        writer.write(b"{}\n")
        refused = decode_reply(await reader.readline())
        writer.close()
    assert isinstance(refused, QuestionRefused)
    assert refused.code == MALFORMED


async def test_a_client_that_leaves_stops_its_answer(tmp_path: Path) -> None:
    async with serving(tmp_path) as (client, engine):
        answering = client.ask(question("a", FOREVER))
        assert await anext(answering) == TextAdded(FOREVER, spent=Spent(1, 0, 1))
        await answering.aclose()
        assert await asyncio.to_thread(engine.loaded[0][1].stopped.wait, 5)


async def test_more_questions_than_the_limit_are_refused(tmp_path: Path) -> None:
    async with serving(tmp_path, QuestionLimits(all_max=0)) as (client, _):
        (refused,) = await said(client, question("a"))
    assert isinstance(refused, QuestionRefused)
    assert (refused.code, refused.retry_s) == (BUSY, hosts.RETRY_S_MIN)


async def test_more_bytes_than_the_limit_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosts, "WAITING_BYTES_MAX", 1_000)
    async with serving(tmp_path) as (client, _):
        (refused,) = await said(client, question("a", "word " * 1_000))
        assert isinstance(refused, QuestionRefused)
        assert refused.code == BUSY
        assert len(await said(client, question("a", "one"))) == 2


async def test_a_full_replica_of_one_tenant_says_so_that_another_one_is_asked(
    tmp_path: Path,
) -> None:
    asker = Asker("acme", "key_1", "a")
    async with serving(tmp_path, QuestionLimits(all_max=1, tenant_max=1)) as (client, _):
        answering = client.ask(replace(question("a", FOREVER), asker=asker))
        await anext(answering)
        (refused,) = await said(client, replace(question("a"), asker=asker))
        assert isinstance(refused, QuestionRefused)
        assert refused.code == BUSY
        await answering.aclose()


async def test_first_hour2_u23_questions_wait_for_a_place_and_say_that_they_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """60 at once were answered with 28 answers and 32 refusals."""
    monkeypatch.setattr(hosts, "SIGN_MS", 20)
    asked = replace(question("a", "one two"), asker=Asker("acme", "key_1", "a"))
    async with serving(tmp_path, QuestionLimits(), answers_max=1) as (client, engine):
        first = client.ask(replace(question("a", FOREVER), asker=asked.asker))
        await anext(first)
        early, late = client.ask(asked), client.ask(asked)
        other = client.ask(replace(asked, asker=Asker("other", "key_2", "a")))
        assert await anext(early) == AnswerWaits(loading=False)
        assert await anext(late) == AnswerWaits(loading=False, ahead=1)
        assert await anext(other) == AnswerWaits(loading=False)  # it learns nothing of others
        await early.aclose()  # it left while it waited, and takes no place
        while await anext(late) != AnswerWaits(loading=False):
            pass
        waiting = [asyncio.create_task(said(client, asked)) for _ in range(60)]
        await late.aclose()
        await other.aclose()
        await first.aclose()
        assert await asyncio.to_thread(engine.loaded[0][1].stopped.wait, 5)
        answers = await asyncio.gather(*waiting)
    for replies in answers:
        assert [r for r in replies if not isinstance(r, AnswerWaits)] == [
            TextAdded("one", spent=Spent(2, 0, 1)),
            TextAdded("two", spent=Spent(2, 0, 2)),
            AnswerEnded("stop", 2, 2),
        ]


async def test_a_question_that_waits_too_long_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosts, "SIGN_MS", 20)
    async with serving(tmp_path, QuestionLimits(wait_ms_max=60), answers_max=1) as (client, _):
        first = client.ask(question("a", FOREVER))
        await anext(first)
        *signs, refused = await said(client, question("a", "one"))
        assert signs == [AnswerWaits(loading=False)] * len(signs)
        assert isinstance(refused, QuestionRefused)
        assert refused.code == BUSY
        await first.aclose()


async def test_an_answer_that_is_written_for_too_long_ends_there_and_is_counted(
    tmp_path: Path,
) -> None:
    limits = QuestionLimits(answer_ms_max=50)
    asked = replace(question("a", FOREVER), asker=Asker("acme", "key_1", "tiny"))
    async with serving(tmp_path, limits) as (client, engine):
        *texts, end = await said(client, asked)
        assert await asyncio.to_thread(engine.loaded[0][1].stopped.wait, 30)
        assert await said(client, question("a", "one")) == [
            TextAdded("one", spent=Spent(1, 0, 1)),
            AnswerEnded("stop", 1, 1),
        ]
    assert end == AnswerEnded("length", 1, len(texts))
    meter = AnswerMeter(tmp_path / "answers")
    (use,) = [use for path in meter.closed_files() for use in uses_of(path)["acme"]]
    assert use.completion_tokens == len(texts)


async def test_no_tenant_fills_the_engine_alone(tmp_path: Path) -> None:
    def asked_by(tenant: str, text: str) -> Question:
        return replace(question("a", text), asker=Asker(tenant, "key_1", "a"))

    async with serving(tmp_path) as (client, _):
        answering = client.ask(asked_by("acme", FOREVER))
        await anext(answering)
        (refused,) = await said(client, asked_by("acme", "one"))
        assert isinstance(refused, QuestionRefused)
        assert refused.code == TENANT_BUSY
        *_, ended = await said(client, asked_by("beta", "one"))
        assert isinstance(ended, AnswerEnded)
        await answering.aclose()


async def test_keys_that_come_with_a_question_are_kept_for_its_files(tmp_path: Path) -> None:
    engine, handed = MemoryEngine(), HandedPathKeys()
    models = LoadedModels(engine, engine, models_max=2, answers_max=4)
    meter = AnswerMeter(tmp_path / "answers")
    host = EngineHost(models, tmp_path / "engine.sock", meter, handed=handed)
    running = asyncio.create_task(host.run())
    await host.ready()
    try:
        key = BlobKey("t/acme/models/m/a", b"1a2b3c4d", bytes(32))
        await said(SocketEngine(tmp_path / "engine.sock"), question("a", "one"))
        reader, writer = await asyncio.open_unix_connection(tmp_path / "engine.sock")
        writer.write(encode_line(replace(question("a", "one"), keys=(key,))))
        assert await reader.read()
        writer.close()
    finally:
        running.cancel()
        await asyncio.wait((running,))
    kept = handed.find("acme", "t/acme/models/m/a", b"1a2b3c4d")
    assert kept == PathKey(b"1a2b3c4d", bytes(32))
