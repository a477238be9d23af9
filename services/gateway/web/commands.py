"""Sends a client's command and waits until its decision is in the read models."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Final

from schemas import errors
from schemas.envelope import Idempotency, Message
from schemas.reasons import refusing
from schemas.sealed import Sealed
from schemas.streams import Stream
from schemas.units import Ms
from services.gateway.web.command_results import CommandResults, TooManyWaiting
from services.gateway.web.domain.errors import not_decided, refused, unavailable
from services.gateway.wording import refusal_words
from tunery.runtime.bus.abstract import AppendUnknown, LevelTooLow, Unavailable
from tunery.runtime.bus.sender import Sender
from tunery.runtime.ids import NewId, new_id
from tunery.runtime.store.abstract import CommandResult
from tunery.runtime.telemetry.logs import log_event, subject_of

LOG: Final = logging.getLogger("tunery.gateway")
SEND_MS_MAX: Final[Ms] = 3_000
WAIT_MS_MAX: Final[Ms] = 10_000
#: counts what the present request records; raises ApiError 429. None: it is not counted.
COUNT_RECORD: ContextVar[Callable[[], Awaitable[None]] | None] = ContextVar(
    "count_record", default=None
)


async def count_early() -> None:
    """Count what the present request records before it is done. Raises ApiError 429."""
    if (count_record := COUNT_RECORD.get()) is not None:
        await count_record()
        COUNT_RECORD.set(None)


class CommandSender:
    def __init__(
        self,
        sender: Sender,
        command_results: CommandResults,
        *,
        wait_ms_max: Ms = WAIT_MS_MAX,
        fresh_id: NewId = new_id,
    ) -> None:
        self._sender, self._command_results, self._fresh_id = sender, command_results, fresh_id
        self._wait_ms_max = wait_ms_max

    async def decide(
        self,
        stream: Stream,
        tenant: str,
        body: Message,
        *,
        key: str | None = None,
        partition: int | None = None,
        idempotency: Idempotency | None = None,
        actor: Sealed | None = None,
    ) -> CommandResult:
        """Send a command and return its result, accepted or repeated.

        key: of the stream, None: the tenant

        Raises ApiError: the decider's refusal; 409 where an upgrade has to be finished first; 429
        when the tenant may record no more; 503 when the log is away (nothing was sent), or when
        there is no decision in time (it may still come).
        """
        if (count_record := COUNT_RECORD.get()) is not None:
            await count_record()
        command_id = self._fresh_id()
        try:
            with self._command_results.expect(command_id):
                try:
                    async with asyncio.timeout(SEND_MS_MAX / 1_000):
                        await self._sender.send(
                            stream,
                            tenant if key is None else key,
                            tenant,
                            body,
                            command_id=command_id,
                            idempotency=idempotency,
                            partition=partition,
                            actor=actor,
                        )
                except LevelTooLow as low:
                    why = refusing("level_too_low", needed=low.needed, level=low.level)
                    raise refused(errors.LEVEL_TOO_LOW, refusal_words(why), None) from low
                except Unavailable as error:
                    raise unavailable("The log") from error
                except (TimeoutError, AppendUnknown) as error:
                    raise not_decided() from error
                result = await self._command_results.wait(command_id, self._wait_ms_max)
        except TooManyWaiting as error:
            raise unavailable("The decider of this request") from error
        if result is None:
            raise not_decided()
        log_event(
            LOG,
            logging.INFO,
            "command.decided",
            command=type(body).__name__,
            command_id=command_id,
            code=result.code,
            tenant=tenant,
            **subject_of(body),
        )
        if result.code is not None:
            words = result.code if result.reason is None else refusal_words(result.reason)
            raise refused(result.code, words, result.param)
        return result
