"""Reads what journals have now, for programs that do not follow them."""

from collections.abc import AsyncIterator, Iterable
from typing import Final

from schemas.streams import PARTITIONS, Stream
from schemas.units import Ms
from tunery.runtime.bus.abstract import Log
from tunery.runtime.journal.reader import START, Accepted, JournalReader

WAIT_MS: Final[Ms] = 500


async def read_history(
    log: Log, stream: Stream, partitions: Iterable[int] = range(PARTITIONS)
) -> AsyncIterator[Accepted]:
    """The accepted entries of a stream up to where its journal ends now, in order by partition.

    Raises Divergence, Unreadable, Unavailable.
    """
    wanted = tuple(partitions)
    reader = JournalReader(log, stream, dict.fromkeys(wanted, START))
    try:
        await reader.open()
        while not all(map(reader.caught_up, wanted)):
            for batch in (await reader.read(WAIT_MS)).values():
                for accepted in batch.accepted:
                    yield accepted
    finally:
        await reader.close()
