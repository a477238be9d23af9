"""The effect that answers rows, run as its host runs it."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from schemas.batch import BatchCreated, CreateBatch, EndBatch
from schemas.dataset import FileContent
from schemas.topics import ACCOUNT
from services.gateway.batches import row_answers
from services.gateway.batches.row_answers import (
    ROW_TRIES_MAX,
    answer_batches,
    give_up,
    later,
    lines_of,
)
from services.gateway.web.domain.errors import ApiError, unavailable
from tests.unit.services.billing.domain.test_batches import TERMS
from tests.unit.services.gateway.batches.test_routes import begin, file_of, lines, row, until, used
from tests.unit.services.gateway.chat.scripted_engine import ScriptedEngine
from tests.unit.services.gateway.chat.test_routes import engine, sdk
from tests.unit.services.gateway.control_plane import ControlPlane
from tunery.runtime.verbs import GoOnLater, Outage, RetryLater
from tunery.work.engine import FAILED, EngineReply, Question, QuestionRefused

__all__ = ["engine"]


class FailingEngine(ScriptedEngine):
    """Fails to answer a few questions before it answers."""

    def __init__(self, failures: int, *, away: bool) -> None:
        super().__init__()
        self.failures, self.is_away = failures, away

    async def ask(self, question: Question) -> AsyncGenerator[EngineReply, None]:
        if self.failures:
            self.failures -= 1
            if self.is_away:
                raise unavailable("The engine")
            yield QuestionRefused(FAILED, "failed")
            return
        async for reply in super().ask(question):
            yield reply


@pytest.mark.parametrize(
    ("failures", "away", "status"),
    [(ROW_TRIES_MAX + 1, True, 200), (1, False, 200), (ROW_TRIES_MAX, False, 503)],
)
async def test_a_row_is_asked_again_while_the_engine_is_away(
    api: ControlPlane,
    engine: ScriptedEngine,
    monkeypatch: pytest.MonkeyPatch,
    failures: int,
    away: bool,
    status: int,
) -> None:
    monkeypatch.setattr(row_answers, "ROW_PAUSE_MS", 1)
    monkeypatch.setattr(engine, "ask", FailingEngine(failures, away=away).ask)
    async with sdk(await api.tenant()) as client:
        batch = await until(client, await begin(client, file_of(row("a"))))
        (line,) = await lines(client, batch.output_file_id or batch.error_file_id)
    assert line["response"]["status_code"] == status


async def sent(api: ControlPlane, tenant: str, **terms: Any) -> str:
    """Send the command for a batch, with terms that no request leads to; returns its id."""
    batch_id = api.deps.fresh("batch_")
    command = CreateBatch(terms=msgspec.structs.replace(TERMS, batch_id=batch_id, **terms))
    await api.deps.commands.decide(ACCOUNT, tenant, command)
    return batch_id


@pytest.fixture
def held(engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Set: the engine answers."""
    answers = asyncio.Event()

    async def ask(question: Question) -> AsyncGenerator[EngineReply, None]:
        await answers.wait()
        async for reply in ScriptedEngine().ask(question):
            yield reply

    monkeypatch.setattr(engine, "ask", ask)
    return answers


async def test_rows_that_two_processes_answer_are_recorded_and_billed_once(
    api: ControlPlane, held: asyncio.Event
) -> None:
    """A process that was held up finds that a later one has answered its rows."""
    http = await api.tenant()
    tenant = http.headers["x-tenant"]
    another = replace(api.deps, engine=ScriptedEngine())
    async with sdk(http) as client:
        batch = await begin(client, file_of(row("a"), row("b")))
        await until(client, batch, lambda b: b.status == "in_progress")
        created = BatchCreated(terms=msgspec.structs.replace(TERMS, batch_id=batch.id))
        assert await answer_batches(another).run(created, tenant) is None
        held.set()
        batch = await until(client, batch)
        answered = await lines(client, batch.output_file_id)
    assert [line["custom_id"] for line in answered] == ["a", "b"]
    assert await answer_batches(another).run(created, tenant) is None  # it is over
    assert [use["num_model_requests"] for use in await used(http)] == [2]


async def test_a_batch_whose_file_is_gone_fails(api: ControlPlane) -> None:
    http = await api.tenant()
    tenant = http.headers["x-tenant"]
    key_id = (await http.get("/v1/keys/current")).json()["id"]
    gone = FileContent(bytes=3, sha256="a" * 64, blob=f"t/{tenant}/files/file-gone")
    batch_id = await sent(api, tenant, content=gone, key_id=key_id)
    async with sdk(http) as client:
        batch = await until(client, await client.batches.retrieve(batch_id))
    assert batch.errors is not None
    assert [problem.code for problem in batch.errors.data or ()] == ["file_missing"]


@pytest.mark.parametrize(("status", "raised"), [(409, GoOnLater), (503, Outage), (401, RetryLater)])
def test_an_effect_says_how_it_goes_on(status: int, raised: type[Exception]) -> None:
    assert isinstance(later(ApiError(status, "code", "words")), raised)


def test_a_batch_that_cannot_be_worked_on_fails() -> None:
    send = give_up("batch_1", "acme")
    assert isinstance(send.body, EndBatch)
    assert [problem.code for problem in send.body.result.problems] == ["not_processed"]


async def chunks(*texts: bytes) -> AsyncGenerator[bytes, None]:
    for text in texts:
        yield text


async def test_lines_are_numbered_and_blank_ones_left_out() -> None:
    read = [line async for line in lines_of(chunks(b"a\n\nb", b"c\r\n \nd"))]
    assert read == [(1, b"a"), (3, b"bc\r"), (5, b"d")]
