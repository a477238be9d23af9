"""What the agent reports: facts to `pool` that must arrive, and telemetry that may get lost."""

import logging
from functools import partial
from typing import Final

import msgspec

from schemas.envelope import Message
from schemas.telemetry import Heartbeat, LogLine, Progress, Step
from schemas.topics import HEARTBEATS, POOL, TELEMETRY
from tunery.runtime.backoff import Backoff, retry
from tunery.runtime.bus.abstract import AppendUnknown, BusError, Unavailable
from tunery.runtime.bus.signing import NODES
from tunery.runtime.ports import Runtime
from tunery.runtime.telemetry.logs import log_event

LOG: Final = logging.getLogger("tunery.trainer")
RETRIES: Final = Backoff(100, 5_000)

Telemetry = Step | LogLine | Progress


class Reports:
    """Commands go out one after the other, in the order of the calls.

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
        await retry(
            partial(self._runtime.sender.send, POOL.name, self._pool, tenant, body),
            (Unavailable, AppendUnknown),
            clock=self._runtime.clock,
            backoff=RETRIES,
        )

    async def telemetry(self, record: Telemetry) -> None:
        """Offer a record about a job; it is dropped when the log is unavailable."""
        value = msgspec.json.encode(record)
        if self._signs_telemetry:
            value = self._runtime.keys.sign(TELEMETRY.name, value)
        await self._offer(TELEMETRY.name, record.job_id, value)

    async def heartbeat(self, beat: Heartbeat) -> None:
        """Offer a proof of life; it is dropped when the log is unavailable."""
        signed = self._runtime.keys.sign(NODES, msgspec.json.encode(beat))
        await self._offer(HEARTBEATS.name, beat.node_id, signed)

    async def _offer(self, topic: str, key: str, record: bytes) -> None:
        try:
            await self._runtime.log.send(topic, key.encode(), record)
        except BusError:
            return  # superseded by the next one
