"""Waiting for a decision: it is read even without a notice; without the store waiting ends."""

import asyncio
import time

import pytest

from services.gateway.web import command_results as adapter
from services.gateway.web.command_results import CommandResults
from tunery.runtime.store.abstract import CommandResult, StoreUnavailable
from tunery.runtime.store.memory import MemoryStore

DECIDED = CommandResult("c1", "job", 0, 1, 1, "acme", "acme", 1)
WAIT_MS = 60_000


class Flaky(MemoryStore):
    """Answers with these, one after the other; an exception is raised, `hang` never answers."""

    def __init__(self, *answers: CommandResult | Exception | str | None) -> None:
        super().__init__()
        self.answers = list(answers)

    async def command_result(self, command_id: str) -> CommandResult | None:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, str):
            await asyncio.Event().wait()
        return answer if isinstance(answer, CommandResult) else None


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapter, "POLL_MS", 5)
    monkeypatch.setattr(adapter, "AWAY_MS_MAX", 100)


async def timed_wait(
    *answers: CommandResult | Exception | str | None,
) -> tuple[CommandResult | None, float]:
    command_results = CommandResults(Flaky(*answers))
    with command_results.expect("c1"):
        begun = time.monotonic()
        result = await command_results.wait("c1", WAIT_MS)
        return result, time.monotonic() - begun


async def test_a_decision_is_read_even_when_its_notice_is_lost() -> None:
    assert (await timed_wait(None, None, DECIDED))[0] == DECIDED


async def test_a_short_outage_of_the_store_is_waited_out() -> None:
    away = StoreUnavailable("starting up")
    assert (await timed_wait(away, away, None, away, DECIDED))[0] == DECIDED


@pytest.mark.parametrize("answer", [StoreUnavailable("refused"), "hang"])
async def test_waiting_ends_when_the_store_cannot_be_read(answer: Exception | str) -> None:
    result, took_s = await timed_wait(answer)
    assert result is None
    assert took_s < WAIT_MS / 2_000
