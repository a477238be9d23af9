"""Closes a month, and destroys the data key of an erased tenant.

A month is billed as the ledger has it, once that has read everything of the month.

The ledger must have passed the end that the pool's journal had after the month's end; what is
written later is late, and on the next bill. What tenants keep must be known up to such an end, too;
it is never late, because its time is that of the journal.
"""

import asyncio
from typing import Final

from schemas.account import CloseInvoice, PeriodEnded
from schemas.erasure import RecordErasedPart
from schemas.streams import PARTITIONS, Stream
from schemas.topics import DATASET, MODEL, POOL, SESSION
from schemas.units import Ms
from services.billing.ports import Books
from services.billing.project import CLOSE, DESTROY_KEY, DestroyKey
from tunery.billing.periods import BillShare, Cut, cut_of, later_cut, period
from tunery.platform.seal.sealer import Sealer
from tunery.runtime.bus.abstract import Log
from tunery.runtime.verbs import Effect, RetryLater, Send

TRIES_MAX: Final = 1_000_000  # at most one a minute: a partition that stopped waits for an operator
CLOSINGS_AT_ONCE: Final = 256  # what they read is read together, and so is sent what they send
CLOSING_LEASE_MS: Final[Ms] = 60_000
COMPLETE_S: Final = 1.0


class Behind(RetryLater):
    """The ledger has not read everything that was written before the end of the month."""


def close(log: Log, books: Books) -> Effect[PeriodEnded]:
    """The effect that bills a month; it is retried until the ledger has read all of the month."""
    complete = _Complete(log, books)

    async def run(ended: PeriodEnded, tenant: str, _: int = 1) -> Send:
        now = await complete.cut(ended.period)
        before = cut_of(ended.before) if ended.before else Cut(offsets=(0,) * PARTITIONS)
        share = BillShare(month=period(ended.period), late=before, cut=later_cut(before, now))
        statement = await books.statement(tenant, ended, share)
        return Send("account", tenant, tenant, CloseInvoice(statement=statement))

    return Effect(
        kind=CLOSE,
        body=PeriodEnded,
        run=run,
        tries_max=TRIES_MAX,
        concurrency=CLOSINGS_AT_ONCE,
        row_lease_ms=CLOSING_LEASE_MS,
    )


class _Complete:
    """How far everything is read, asked once for all tenants whose month is closed at a time.

    What a closing of a month has found holds for the others of this month: it was over by then. So
    do the ends of a journal that goes on all the time: the ledger reaches those of an earlier try.
    """

    def __init__(self, log: Log, books: Books) -> None:
        self._log, self._books = log, books
        self._asking = asyncio.Lock()
        self._month, self._until_s = "", 0.0
        self._ends: list[int] | None = None  # of the pool's journal, not reached yet
        self._cut = Cut(offsets=())

    async def cut(self, month: str) -> Cut:
        """Return the ledger's position in the pool's journal once past the month. Raises Behind."""
        async with self._asking:
            now_s = asyncio.get_running_loop().time()
            if self._month != month:
                self._month, self._until_s, self._ends = month, 0.0, None
            if self._until_s <= now_s:
                self._cut = await self._read()
                self._until_s, self._ends = now_s + COMPLETE_S, None
            return self._cut

    async def _read(self) -> Cut:
        ends = self._ends = self._ends or await _ends(self._log, POOL)
        reached = await self._books.reached()
        behind = [at for at in range(PARTITIONS) if reached.offsets[at] < ends[at]]
        if behind:
            journal = POOL.journal.name
            raise Behind(f"partitions {behind} of {journal} are not in the ledger up to {ends}")
        await _expect_storage(self._log, self._books)
        return Cut(offsets=tuple(ends), incarnations=reached.incarnations)


def destroy_key(seal: Sealer) -> Effect[DestroyKey]:
    """The effect after which no sealed text of a tenant can be opened; a second time it changes
    nothing.
    """

    async def run(_: DestroyKey, tenant: str, __: int = 1) -> Send:
        await asyncio.to_thread(seal.destroy, tenant)
        return Send("account", tenant, tenant, RecordErasedPart(part="key"))

    return Effect(kind=DESTROY_KEY, body=DestroyKey, run=run, tries_max=TRIES_MAX)


async def _expect_storage(log: Log, books: Books) -> None:
    """Raises Behind while changes of stored bytes are not all known."""
    stored = await books.stored()
    for stream in (DATASET, MODEL, SESSION):
        for partition, end in enumerate(await _ends(log, stream)):
            if stored[stream.name, partition] < end:
                raise Behind(f"partition {partition} of {stream.journal.name} is not read to {end}")


async def _ends(log: Log, stream: Stream) -> list[int]:
    """Return the end offset of each partition of a journal."""
    ends = await log.ends(stream.journal.name, range(PARTITIONS))
    return [ends[number] for number in range(PARTITIONS)]
