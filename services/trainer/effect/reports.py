"""Reports of the agent: facts to `pool` that must arrive, and telemetry that may get lost."""

import logging
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

from schemas.envelope import Message
from schemas.streams import Stream
from schemas.telemetry import Heartbeat
from schemas.topics import HEARTBEATS, POOL, TELEMETRY
from services.trainer.ports import Telemetry
from tunery.platform.bus.sender_keys import NODES
from tunery.platform.ports import Runtime
from tunery.runtime.backoff import Backoff, retry
from tunery.runtime.bus.abstract import AppendUnknown, BusError, Unavailable
from tunery.runtime.telemetry.logs import log_event

LOG: Final = logging.getLogger("tunery.trainer")
RETRIES: Final = Backoff(100, 5_000)
INTEGER_MAX: Final = (1 << 53) - 1  # exact in every reader of JSON; tables keep sums of them
M = TypeVar("M", bound=Message)


class Reports:
    """Implements `Reporting`. Commands go out one after the other, in the order of the calls.

    An append of unknown outcome is repeated: `pool` takes the first of equal facts and refuses the
    rest by the fencing token.
    """

    def __init__(self, runtime: Runtime, pool: str) -> None:
        self._runtime, self._pool = runtime, pool
        self._signs_telemetry = runtime.keys.can_sign(TELEMETRY.name)
        if runtime.keys.sender and not self._signs_telemetry:
            why = "keys of an earlier version: enrol the node again, or print its keys again"
            log_event(LOG, logging.WARNING, "telemetry.unsigned", why=why)

    async def fact(self, body: Message, tenant: str = "") -> None:
        """Return when the command is in the log, however long that takes."""
        await send_until_logged(self._runtime, POOL.name, self._pool, tenant, body)

    async def telemetry(self, record: Telemetry) -> None:
        """Offer a record about a job; it is dropped when the log is unavailable."""
        value = msgspec.json.encode(bounded(record))
        if self._signs_telemetry:
            value = self._runtime.keys.sign(TELEMETRY.name, value)
        await self._offer(TELEMETRY.name, record.job_id, value)

    async def heartbeat(self, beat: Heartbeat) -> None:
        """Offer a proof of life; it is dropped when the log is unavailable."""
        signed = self._runtime.keys.sign(NODES, msgspec.json.encode(bounded(beat)))
        await self._offer(HEARTBEATS.name, beat.node_id, signed)

    async def _offer(self, topic: str, key: str, record: bytes) -> None:
        try:
            await self._runtime.log.send(topic, key.encode(), record)
        except BusError:
            return  # superseded by the next one


async def send_until_logged(
    runtime: Runtime, stream: Stream | str, key: str, tenant: str, body: Message
) -> None:
    """Return when a command is in the log, however long that takes; it may be there twice then."""
    await retry(
        partial(runtime.sender.send, stream, key, tenant, bounded(body)),
        (Unavailable, AppendUnknown),
        clock=runtime.clock,
        backoff=RETRIES,
    )


def bounded(message: M) -> M:
    """Return the message with all integers within INTEGER_MAX of zero.

    Processes and pods count, and may lie: a table refuses a larger one, and its reader would stop
    there for all tenants.
    """
    said = msgspec.to_builtins(message)
    within = _bounded(said)
    return message if within == said else msgspec.convert(within, type(message))


def _bounded(value: Any) -> Any:
    match value:
        case dict():
            return {name: _bounded(each) for name, each in value.items()}
        case list() | tuple():
            return type(value)(map(_bounded, value))
        case int():
            return max(-INTEGER_MAX, min(value, INTEGER_MAX))
        case _:
            return value
