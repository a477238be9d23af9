"""Foul months against a second biller: terms, plans and currencies change as late as they may."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pytest

from schemas.account import PeriodEnded
from schemas.billing import BillingTerms, Statement
from schemas.envelope import Header, Message
from services.billing.project import project_storage, project_tenants
from tests.foul_months import FoulMonths, expect_bills
from tests.searches import YEARS
from tunery.billing.answers import AnswersOfMonth
from tunery.billing.invoice import BilledMonth, close_invoice, is_billable, make_invoices
from tunery.billing.lines import select_usage
from tunery.billing.periods import BillShare, Cut, Period
from tunery.billing.storage import BookPeriod, StorageUse, StoredObject, storage_of_month
from tunery.runtime.verbs import Upsert


class MemoryBooks:
    """Bills of the rows in memory; tests/integration has the same months in PostgreSQL."""

    def __init__(self) -> None:
        self.months: FoulMonths | None = None
        self.rows: defaultdict[str, dict[str, dict[str, Any]]] = defaultdict(dict)

    async def project(self, header: Header, event: Message) -> None:
        for change in (*project_tenants(header, event), *project_storage(header, event)):
            if isinstance(change, Upsert):
                row = self.rows[change.table].setdefault(str(change.key), {**change.key})
                row.update(change.values)

    async def reached(self) -> Cut:
        raise NotImplementedError

    async def stored(self) -> Mapping[tuple[str, int], int]:
        raise NotImplementedError

    async def statement(self, tenant: str, ended: PeriodEnded, share: BillShare) -> Statement:
        months = self.months
        assert months is not None
        assert share.cut is not None
        billed = BilledMonth(
            tenant=tenant,
            month=share.month,
            soft_gpu_ms=ended.soft_gpu_ms,
            currency=months.books[ended.price_version].currency,
            terms=ended.terms or BillingTerms(),
            storage=self._storage(share.month),
            answers=tuple(self._answers(share.month)),
            adjustments=tuple(
                entry.adjustment for entry in months.adjustments if entry.period == ended.period
            ),
            closed={entry.period: entry for entry in months.closed},
        )
        invoices = make_invoices(billed, select_usage(months.rows, share), months.books)
        return Statement(
            period=ended.period,
            cut=share.cut.offsets,
            currency=billed.currency,
            soft_gpu_ms=ended.soft_gpu_ms,
            gpu_ms=0,
            amount_micro=0,
            bills=tuple(map(close_invoice, filter(is_billable, invoices))),
            terms=ended.terms,
        )

    def _storage(self, month: Period) -> tuple[StorageUse, ...]:
        held = (BookPeriod(row["since"], row["price_version"]) for row in self._of("held_books"))
        kept = (
            StoredObject(bytes=row["bytes"], since=row["since"], until=row["until"])
            for row in self._of("storage")
        )
        return storage_of_month(kept, held, month, month.end_ms)

    def _answers(self, month: Period) -> Iterator[AnswersOfMonth]:
        kinds = ("prompt_tokens", "cached_tokens", "completion_tokens")
        sums: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for row in self._of("answers"):
            if month.first_hour <= row["hour_utc"] < month.end_hour:
                sums[row["price_version"]].update({kind: row[kind] for kind in kinds})
        for version, tokens in sums.items():
            yield AnswersOfMonth(price_version=version, **tokens)

    def _of(self, table: str) -> Iterable[dict[str, Any]]:
        return self.rows[table].values()


@pytest.mark.parametrize("first", YEARS.beginnings(step=20))
async def test_review2_bills_of_foul_months_are_those_of_a_second_biller(first: int) -> None:
    done = Counter[str]()
    for seed in range(first, first + 20):
        books = MemoryBooks()
        months = books.months = FoulMonths(seed, books, project=books.project)
        await months.play()
        expect_bills(months)
        done += months.done
    assert (
        min(done[what] for what in ("plan", "plan refused", "terms", "terms refused", "late")) > 9
    )
