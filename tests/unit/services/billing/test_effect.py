"""A month is closed once the ledger has all usage that was written before, and no other."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

import pytest
from msgspec.structs import replace

from schemas.account import CloseInvoice, PeriodEnded
from schemas.billing import Statement
from schemas.erasure import RecordErasedPart
from schemas.sealed import REDACTED
from schemas.streams import PARTITIONS
from schemas.topics import DATASET, MODEL, POOL, SESSION, STREAMS
from services.billing.effect import Behind, close, destroy_key
from services.billing.project import DestroyKey
from tunery.billing.periods import BillShare, Cut, period
from tunery.platform.seal.memory import MemoryKeyStore
from tunery.platform.seal.sealer import Sealer
from tunery.runtime.bus.memory import MemoryLog
from tunery.runtime.bus.partitioner import partition_of
from tunery.runtime.verbs import Send

WRITTEN = 5  # records in partition 3 of the pool's journal


@dataclass
class FakeBooks:
    at: tuple[int, ...] = (0, 0, 0, WRITTEN, 0, 0, 0, 0)
    asked: BillShare | None = None
    stored_to: int = 0
    looks: int = 0

    async def reached(self) -> Cut:
        self.looks += 1
        return Cut(offsets=self.at, incarnations=(0,) * len(self.at))

    async def stored(self) -> Mapping[tuple[str, int], int]:
        return {(s, p): self.stored_to for s in STREAMS for p in range(PARTITIONS)}

    async def statement(self, tenant: str, ended: PeriodEnded, share: BillShare) -> Statement:
        self.asked = share
        return statement(ended.period, share.cut.offsets if share.cut else ())


def statement(name: str, cut: tuple[int, ...]) -> Statement:
    return Statement(period=name, cut=cut, currency="EUR", soft_gpu_ms=1, gpu_ms=2, amount_micro=3)


def ended(before: Statement | None = None) -> PeriodEnded:
    return PeriodEnded(period="2026-11", soft_gpu_ms=1, before=before)


async def written() -> MemoryLog:
    log = MemoryLog()
    await log.create((POOL.journal, DATASET.journal, MODEL.journal, SESSION.journal), PARTITIONS)
    key = next(key for key in (b"%d" % n for n in range(99)) if partition_of(key) == 3)
    for _ in range(WRITTEN):
        await log.send(POOL.journal.name, key, b"{}")
    return log


async def test_the_first_bill_contains_all_usage_so_far() -> None:
    books = FakeBooks()
    sent = await close(await written(), books).run(ended(), "acme")
    assert sent is not None
    assert (sent.stream, sent.key) == ("account", "acme")
    assert isinstance(sent.body, CloseInvoice)
    assert sent.body.statement.cut == books.at
    first, cut = Cut(offsets=(0,) * 8), await books.reached()
    assert books.asked == BillShare(month=period("2026-11"), late=first, cut=cut)


async def test_the_next_bill_begins_where_the_last_one_ended() -> None:
    books, before = FakeBooks(), statement("2026-10", (9, 0, 0, 2, 0, 0, 0, 0))
    await close(await written(), books).run(ended(before), "acme")
    assert books.asked is not None
    assert books.asked.late == Cut(offsets=before.cut)
    assert books.asked.cut is not None
    assert books.asked.cut.offsets == (9, 0, 0, WRITTEN, 0, 0, 0, 0)  # a cut never goes back


async def test_closing_waits_until_it_is_known_what_was_kept() -> None:
    books, log = FakeBooks(), await written()
    await log.send(DATASET.journal.name, b"acme", b"{}")
    with pytest.raises(Behind, match="dataset"):
        await close(log, books).run(ended(), "acme")
    assert books.asked is None
    books.stored_to = 1
    await close(log, books).run(ended(), "acme")
    assert books.asked is not None


async def test_closing_waits_until_the_ledger_is_up_to_date() -> None:
    books = FakeBooks(at=(0, 0, 0, WRITTEN - 1, 0, 0, 0, 0))
    with pytest.raises(Behind, match=r"partitions \[3\]"):
        await close(await written(), books).run(ended(), "acme")
    assert books.asked is None


async def test_review2_e3_tenants_of_a_month_share_what_is_asked_of_the_log() -> None:
    """A hundred thousand closings asked 24 partitions for their ends, one after the other, each."""
    books, log = FakeBooks(), await written()
    effect = close(log, books)
    assert effect.concurrency > 2
    await asyncio.gather(*(effect.run(ended(), f"t{number}") for number in range(50)))
    assert books.looks == 1
    await effect.run(replace(ended(), period="2026-12"), "acme")
    assert books.looks == 2, "a month that has ended since then"


async def test_review2_e3_a_journal_that_goes_on_does_not_keep_a_month_open() -> None:
    log = await written()
    books = FakeBooks(at=(0, 0, 0, WRITTEN - 1, 0, 0, 0, 0))
    effect, key = close(log, books), b"3"
    for _ in range(2):
        with pytest.raises(Behind):
            await effect.run(ended(), "acme")
    await log.send(POOL.journal.name, key, b"{}", 3)
    books.at = (0, 0, 0, WRITTEN, 0, 0, 0, 0)
    await effect.run(ended(), "acme")
    assert books.asked is not None
    assert books.asked.cut is not None
    assert books.asked.cut.offsets == books.at


async def test_security_h4_a_destroyed_key_opens_nothing_and_may_be_destroyed_again() -> None:
    seal = Sealer(MemoryKeyStore())
    secret, other = seal.seal("acme", "Zanzibar", "name"), seal.seal("acme2", "Zanzibar", "name")
    report = Send("account", "acme", "acme", RecordErasedPart(part="key"))
    for number in (1, 2):
        assert await destroy_key(seal).run(DestroyKey(), "acme", number) == report
    assert (seal.open(secret, "name"), seal.open(other, "name")) == (REDACTED, "Zanzibar")
    assert seal.seal("acme", "late", "name").ciphertext == b""
