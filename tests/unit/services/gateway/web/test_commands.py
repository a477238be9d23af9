"""Outcome of a command, as its client gets it."""

from dataclasses import replace
from typing import Any, cast

import pytest

from schemas import errors
from schemas.account import DeleteEndpoint
from schemas.reasons import refusing
from schemas.topics import ACCOUNT
from services.gateway.web.command_results import CommandResults, TooManyWaiting
from services.gateway.web.commands import CommandSender
from services.gateway.web.domain.errors import ApiError
from tunery.runtime.bus.abstract import AppendUnknown, TooLarge, Unavailable
from tunery.runtime.bus.sender import Sender
from tunery.runtime.store.abstract import CommandResult
from tunery.runtime.store.memory import MemoryStore

ACCEPTED = CommandResult("c1", "account", 0, 1, 1, "acme", "acme", 1)


class Recorder:
    """Stands for `Sender`: keeps what it is sent, or raises."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.commands: list[tuple[str, str, str]] = []

    async def send(self, stream: Any, key: str, tenant: str, body: Any, **options: Any) -> None:
        if self.error is not None:
            raise self.error
        self.commands.append((key, tenant, options["command_id"]))


class Decided(MemoryStore):
    """Every command has this outcome."""

    def __init__(self, result: CommandResult | None) -> None:
        super().__init__()
        self.result = result

    async def command_result(self, command_id: str) -> CommandResult | None:
        return self.result


async def decide(
    result: CommandResult | None = ACCEPTED, sender: Recorder | None = None
) -> CommandResult:
    command_results = CommandResults(Decided(result))
    command_results._wake("")
    sender = sender or Recorder()
    is_decided = result is not None and sender.error is None
    commands = CommandSender(
        cast(Sender, sender),
        command_results,
        wait_ms_max=60_000 if is_decided else 200,
        fresh_id=lambda: "c1",
    )
    return await commands.decide(ACCOUNT, "acme", DeleteEndpoint(endpoint_id="we-1"))


async def refusal_of(**how: Any) -> ApiError:
    with pytest.raises(ApiError) as refusal:
        await decide(**how)
    return refusal.value


async def test_a_decided_command_was_sent_under_the_tenant_with_its_own_id() -> None:
    sender = Recorder()
    assert await decide(sender=sender) == ACCEPTED
    assert sender.commands == [("acme", "acme", "c1")]


async def test_a_refusal_has_the_deciders_code_words_and_field() -> None:
    missing = refusing("endpoint_missing", endpoint_id="we_1")
    result = replace(ACCEPTED, code=errors.NOT_FOUND, reason=missing, param="id")
    error = await refusal_of(result=result)
    assert (error.status, error.message, error.param) == (404, "No webhook endpoint 'we_1'.", "id")


async def test_a_refusal_without_words_is_its_code() -> None:
    error = await refusal_of(result=replace(ACCEPTED, code=errors.ILLEGAL_STATE))
    assert (error.status, error.message) == (409, errors.ILLEGAL_STATE)


async def test_a_repeated_command_is_no_error() -> None:
    repeated = replace(ACCEPTED, repeated_of="c0")
    assert await decide(repeated) == repeated


async def test_a_log_that_is_away_changed_nothing() -> None:
    error = await refusal_of(sender=Recorder(Unavailable("gone")))
    assert (error.status, error.code) == (503, "service_unavailable")


@pytest.mark.parametrize("raised", [AppendUnknown("lost"), TimeoutError()])
async def test_a_command_that_may_have_arrived_may_still_be_decided(raised: Exception) -> None:
    error = await refusal_of(sender=Recorder(raised))
    assert (error.status, error.code) == (503, "not_decided_yet")


async def test_a_command_that_is_too_large_is_left_to_the_handler_of_errors() -> None:
    with pytest.raises(TooLarge):
        await decide(sender=Recorder(TooLarge("2 MB")))


async def test_no_decision_in_time_may_still_come() -> None:
    assert (await refusal_of(result=None)).code == "not_decided_yet"


async def test_too_many_waiting_requests_are_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: CommandResults, command_id: str) -> None:
        raise TooManyWaiting

    monkeypatch.setattr(CommandResults, "expect", full)
    assert (await refusal_of()).code == "service_unavailable"
