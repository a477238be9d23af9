"""Reads a partition without following it: one record, or all that it has now."""

from collections.abc import AsyncGenerator
from typing import Final

from schemas.units import Ms
from tunery.runtime.bus.abstract import Log, Record

WAIT_MS: Final[Ms] = 1_000


async def record_at(log: Log, topic: str, partition: int, offset: int) -> Record:
    """The record at an offset, which the caller knows to be there. Raises OutOfRange, Unavailable.

    It waits for one that was not written yet.
    """
    reader = await log.reader(topic, {partition: offset})
    try:
        while not (records := await reader.poll(WAIT_MS, 1)):
            continue
    finally:
        await reader.close()
    return records[0]


async def records_now(
    log: Log, topic: str, partition: int, bounds: tuple[int, int] | None = None
) -> AsyncGenerator[Record]:
    """All records that the partition has now, in order, or those within the bounds.

    Raises OutOfRange, Unavailable.
    """
    following, end = bounds or await log.bounds(topic, partition)
    reader = await log.reader(topic, {partition: following})
    try:
        while following < end:
            for record in await reader.poll(WAIT_MS, end - following):
                following = record.offset + 1
                yield record
    finally:
        await reader.close()
