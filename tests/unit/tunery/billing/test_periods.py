"""Months: every row is on one bill, however late it comes, and a closed bill never changes."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from schemas.billing import Statement
from schemas.units import HOUR_MS
from tests.unit.tunery.billing.test_invoice import BOOKS, row
from tunery.billing.invoice import Altered, BilledMonth, Invoice, close_invoice, make_invoices
from tunery.billing.lines import LedgerRow, select_usage
from tunery.billing.periods import BillShare, Cut, Period, cut_of, period, period_of, share_of

PARTITIONS = 3
MONTHS = tuple(period(f"2026-{number:02}") for number in range(9, 13))
# a slice: its month, the partition it is in, how many milliseconds
SLICE = st.tuples(st.integers(0, 3), st.integers(0, PARTITIONS - 1), st.integers(1, 2 * HOUR_MS))
# in the order of the log: slices, and closings of the next month
LIFE = st.lists(st.one_of(SLICE, st.just("close")), max_size=40)


def bill(
    month: Period, rows: list[LedgerRow], closed: list[Statement], soft: int = HOUR_MS
) -> Invoice:
    statement = next((closing for closing in closed if closing.period == month.name), None)
    billed = BilledMonth(
        tenant="acme", month=month, soft_gpu_ms=soft, currency="EUR", statement=statement
    )
    (invoice,) = make_invoices(billed, select_usage(rows, share_of(month, closed)), BOOKS)
    return invoice


def close(month: Period, rows: list[LedgerRow], closed: list[Statement]) -> Statement:
    """Close a month as the effect does, with all usage written so far, late usage included."""
    ends = Counter(entry.journal_partition for entry in rows)
    cut = tuple(ends[at] for at in range(PARTITIONS))
    late = cut_of(closed[-1]) if closed else Cut(offsets=(0,) * PARTITIONS)
    share = BillShare(month=month, late=late, cut=Cut(offsets=cut))
    billed = BilledMonth(tenant="acme", month=month, soft_gpu_ms=HOUR_MS, currency="EUR")
    (draft,) = make_invoices(billed, select_usage(rows, share), BOOKS)
    return Statement(
        period=month.name,
        cut=cut,
        currency="EUR",
        soft_gpu_ms=HOUR_MS,
        gpu_ms=draft.gpu_ms,
        amount_micro=draft.amount_micro,
        bills=(close_invoice(draft),),
    )


@given(LIFE)
def test_the_sum_of_all_bills_equals_the_ledger_despite_late_usage(life: list[object]) -> None:
    rows: list[LedgerRow] = []
    closed: list[Statement] = []
    seen: dict[str, Invoice] = {}
    for happened in life:
        if isinstance(happened, tuple):
            at, partition, gpu_ms = happened
            offset = sum(entry.journal_partition == partition for entry in rows)
            new = row(hour_utc=MONTHS[at].first_hour + len(rows) % 5, gpu_ms=gpu_ms)
            rows.append(replace(new, journal_partition=partition, journal_offset=offset))
        elif len(closed) < len(MONTHS) - 1:
            closed.append(close(MONTHS[len(closed)], rows, closed))
            month = MONTHS[len(closed) - 1]
            seen[month.name] = bill(month, rows, closed)
        bills = [bill(month, rows, closed) for month in MONTHS]
        assert sum(month_bill.gpu_ms for month_bill in bills) == sum(entry.gpu_ms for entry in rows)
        assert sum(line.gpu_ms for month_bill in bills for line in month_bill.lines) == sum(
            entry.gpu_ms for entry in rows
        )
        for month_bill in bills:
            assert month_bill.amount_micro == sum(line.amount_micro for line in month_bill.lines)
            if month_bill.status == "closed":
                assert month_bill == seen[month_bill.period]


def test_late_usage_is_on_the_next_bill_and_marked_as_late() -> None:
    september, october = MONTHS[:2]
    early = row(hour_utc=september.first_hour)
    closed = [close(september, [early], [])]
    late = replace(row(hour_utc=september.end_hour - 1), journal_offset=1)
    (line,) = bill(october, [early, late], closed).lines
    assert (line.description, line.overage_gpu_ms) == ("training, late for 2026-09", 0)
    assert bill(september, [early, late], closed).gpu_ms == early.gpu_ms
    assert bill(MONTHS[2], [early, late], closed).lines == ()


def test_a_closed_bill_keeps_its_limit() -> None:
    september = MONTHS[0]
    used = row(hour_utc=september.first_hour, gpu_ms=2 * HOUR_MS)
    closed = [close(september, [used], [])]
    assert bill(september, [used], closed, soft=0).overage_gpu_ms == HOUR_MS


def test_a_closed_bill_that_would_change_is_named() -> None:
    september = MONTHS[0]
    used = row(hour_utc=september.first_hour)
    closed = [close(september, [used], [])]
    with pytest.raises(Altered, match="2026-09 was closed with"):
        bill(september, [replace(used, gpu_ms=used.gpu_ms - 1)], closed)


def test_money_c8_late_rows_of_an_imported_journal_are_on_the_next_bill() -> None:
    september, october = MONTHS[:2]
    closing = Cut(offsets=(5_000,) * PARTITIONS, incarnations=(0,) * PARTITIONS)
    late = (
        september.first_hour,
        0,
        7,
        12,
    )  # the import made incarnation 7; offset 12 is new in it
    assert not BillShare(month=september, cut=closing).has(*late)
    assert BillShare(month=october, late=closing).has(*late)
    assert BillShare(month=september, cut=closing).has(september.first_hour, 0, 0, 12)


@given(st.integers(0, 4_102_444_800_000))  # to the year 2100
def test_a_moment_is_in_one_month_and_months_follow_each_other(at: int) -> None:
    month = period_of(at)
    assert month == period(month.name)
    assert month.first_hour * HOUR_MS <= at < month.end_ms
    assert month.following().first_hour == month.end_hour
