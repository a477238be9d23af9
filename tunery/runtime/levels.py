"""The level of the log as a process knows it: what operators have ordered, followed on the log."""

import logging
from collections.abc import Sequence
from typing import Final

import msgspec

from schemas.envelope import FIRST_LEVEL
from schemas.levels import LEVEL, LevelOrder
from schemas.streams import LEVELS_TOPIC, UPGRADE_PARTITION
from schemas.units import Ms
from tunery.runtime.bus.abstract import Log, Reader, Record
from tunery.runtime.bus.reading import records_now
from tunery.runtime.bus.signing import UNSIGNED, SenderKeys, Unproven
from tunery.runtime.journal.codec import MALFORMED
from tunery.runtime.journal.refusals import OPERATOR
from tunery.runtime.telemetry.logs import log_event

LOG: Final = logging.getLogger("tunery.process")
RECORDS_MAX: Final = 100


class ReleaseTooOld(Exception):
    """The log is at a level that this release cannot read: it must not run."""


class LogLevels:
    """Levels of the streams. Orders that no operator has given are not followed.

    Who owns a stream checks the operator's signature; others have no key for that, and rely on the
    rights of the topic, and on the level in each entry of the journal.
    """

    def __init__(self, readable: int = LEVEL, keys: SenderKeys = UNSIGNED) -> None:
        """readable: the highest level that this release can read."""
        self.readable = readable
        self._keys, self._levels = keys, dict[str, int]()
        self._following = 0

    def of(self, stream: str) -> int:
        """Return the level of a stream."""
        return self._levels.get(stream, FIRST_LEVEL)

    async def load(self, log: Log) -> None:
        """Read what was ordered until now. Raises ReleaseTooOld, Unavailable, OutOfRange."""
        records = [record async for record in records_now(log, LEVELS_TOPIC, UPGRADE_PARTITION)]
        self.take(records)

    async def follow(self, log: Log) -> Reader:
        """Return a reader of later orders, for `poll`. Raises Unavailable."""
        start, end = await log.bounds(LEVELS_TOPIC, UPGRADE_PARTITION)
        return await log.reader(
            LEVELS_TOPIC, {UPGRADE_PARTITION: min(max(self._following, start), end)}
        )

    async def poll(self, orders: Reader, wait_ms: Ms) -> None:
        """Take orders that have come. Raises ReleaseTooOld, Unavailable, OutOfRange."""
        self.take(await orders.poll(wait_ms, RECORDS_MAX))

    def take(self, records: Sequence[Record]) -> None:
        """Follow the orders in these records of the topic. Raises ReleaseTooOld."""
        for record in records:
            self._following = record.offset + 1
            order = read_order(record, self._keys)
            if order is None:
                log_event(LOG, logging.ERROR, "level.order_unproven", offset=record.offset)
            elif order.level > self.of(order.stream):
                self._levels[order.stream] = order.level
        highest = max(self._levels.values(), default=FIRST_LEVEL)
        if highest > self.readable:
            raise ReleaseTooOld(
                f"the log was raised to level {highest}, and this release reads up to "
                f"{self.readable}: start a newer release (`tunery upgrade status` names it)"
            )


def read_order(record: Record, keys: SenderKeys) -> LevelOrder | None:
    """Decode an order; None for one that cannot be read, or is not an operator's."""
    try:
        order = msgspec.json.decode(record.value, type=LevelOrder)
        if keys.can_check(order.stream):
            sender = keys.sender_of(order.stream, record.value, record.timestamp)
            if sender not in (None, OPERATOR):
                return None
    except (Unproven, *MALFORMED):
        return None
    return order
