"""Sends a client's command and waits until its decision is in the read models."""

import asyncio
from typing import Final

from schemas.envelope import Idempotency, Message
from schemas.sealed import Sealed
from schemas.topics import Stream
from schemas.units import Ms
from services.gateway.web.errors import not_decided, refused, unavailable
from services.gateway.web.outcomes import Outcomes, TooManyWaiting
from services.gateway.web.wording import refusal_words
from tunery.runtime.bus.abstract import AppendUnknown, Unavailable
from tunery.runtime.bus.sender import Sender
from tunery.runtime.ids import NewId, new_id
from tunery.runtime.store.abstract import CommandResult

SEND_MS_MAX: Final[Ms] = 3_000
WAIT_MS_MAX: Final[Ms] = 10_000


class CommandSender:
    def __init__(
        self,
        sender: Sender,
        outcomes: Outcomes,
        *,
        wait_ms_max: Ms = WAIT_MS_MAX,
        fresh_id: NewId = new_id,
    ) -> None:
        self._sender, self._outcomes, self._fresh_id = sender, outcomes, fresh_id
        self._wait_ms_max = wait_ms_max

    async def decide(
        self,
        stream: Stream,
        tenant: str,
        body: Message,
        *,
        partition: int | None = None,
        idempotency: Idempotency | None = None,
        actor: Sealed | None = None,
        correlation: str | None = None,
    ) -> CommandResult:
        """Send a command and return its outcome, accepted or repeated.

        Raises ApiError: the decider's refusal; 503 when the log is away (nothing was sent), or
        when there is no decision in time (it may still come).
        """
        command_id = self._fresh_id()
        try:
            with self._outcomes.expect(command_id):
                try:
                    async with asyncio.timeout(SEND_MS_MAX / 1_000):
                        await self._sender.send(
                            stream,
                            tenant,
                            tenant,
                            body,
                            command_id=command_id,
                            idempotency=idempotency,
                            partition=partition,
                            actor=actor,
                            correlation=correlation,
                        )
                except Unavailable as error:
                    raise unavailable("The log") from error
                except (TimeoutError, AppendUnknown) as error:
                    raise not_decided() from error
                outcome = await self._outcomes.wait(command_id, self._wait_ms_max)
        except TooManyWaiting as error:
            raise unavailable("The decider of this request") from error
        if outcome is None:
            raise not_decided()
        if outcome.code is not None:
            words = outcome.code if outcome.reason is None else refusal_words(outcome.reason)
            raise refused(outcome.code, words, outcome.param)
        return outcome
