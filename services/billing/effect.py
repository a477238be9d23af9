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
from schemas.topics import DATASET, MODEL, PARTITIONS, POOL, Stream
from services.billing.ports import Books
from services.billing.project import CLOSE, DESTROY_KEY, DestroyKey
from tunery.billing.periods import BillShare, Cut, cut_of, later_cut, period
from tunery.runtime.bus.abstract import Log
from tunery.runtime.seal.sealer import Sealer
from tunery.runtime.verbs import Effect, Send

TRIES_MAX: Final = 1_000_000  # at most one a minute: a partition that stopped waits for an operator


class Behind(Exception):
    """The ledger has not read everything that was written before the month was to be closed."""


def close(log: Log, books: Books) -> Effect[PeriodEnded]:
    """The effect that bills a month; it is retried until the ledger has read all of the month."""

    async def run(ended: PeriodEnded, tenant: str, _: int = 1) -> Send:
        journal = POOL.journal.name
        ends = await _ends(log, POOL)
        reached = await books.reached()
        behind = [at for at in range(PARTITIONS) if reached.offsets[at] < ends[at]]
        if behind:
            raise Behind(f"partitions {behind} of {journal} are not in the ledger up to {ends}")
        await _expect_storage(log, books)
        before = cut_of(ended.before) if ended.before else Cut(offsets=(0,) * PARTITIONS)
        now = Cut(offsets=tuple(ends), incarnations=reached.incarnations)
        share = BillShare(month=period(ended.period), late=before, cut=later_cut(before, now))
        statement = await books.statement(tenant, ended, share)
        return Send("account", tenant, tenant, CloseInvoice(statement=statement))

    def exhausted(ended: PeriodEnded, tenant: str, failure: str) -> None:
        return None

    return Effect(kind=CLOSE, body=PeriodEnded, run=run, exhausted=exhausted, tries_max=TRIES_MAX)


def destroy_key(seal: Sealer) -> Effect[DestroyKey]:
    """The effect after which no sealed text of a tenant can be opened; a second time it changes
    nothing.
    """

    async def run(_: DestroyKey, tenant: str, __: int = 1) -> Send:
        await asyncio.to_thread(seal.destroy, tenant)
        return Send("account", tenant, tenant, RecordErasedPart(part="key"))

    def exhausted(_: DestroyKey, tenant: str, failure: str) -> None:
        return None

    return Effect(
        kind=DESTROY_KEY, body=DestroyKey, run=run, exhausted=exhausted, tries_max=TRIES_MAX
    )


async def _expect_storage(log: Log, books: Books) -> None:
    """Raises Behind where something that is kept or was deleted is not known yet."""
    stored = await books.stored()
    for stream in (DATASET, MODEL):
        for partition, end in enumerate(await _ends(log, stream)):
            if stored[stream.name, partition] < end:
                raise Behind(f"partition {partition} of {stream.journal.name} is not read to {end}")


async def _ends(log: Log, stream: Stream) -> list[int]:
    """Up to which offset each partition of a journal is written."""
    bounds = [await log.bounds(stream.journal.name, number) for number in range(PARTITIONS)]
    return [end for _, end in bounds]
