"""Overage: what time above a soft limit costs, never less than below it, and what is given back."""

from random import Random

import pytest
from msgspec.structs import replace

from schemas.billing import BillingTerms, Discount, OveragePrice, PriceBook, Rate, Statement, Tier
from schemas.units import HOUR_MS, PPM
from tests.unit.tunery.billing.test_invoice import row
from tunery.billing.invoice import BilledMonth, close_invoice, is_billable, make_invoices
from tunery.billing.lines import LedgerRow, select_usage
from tunery.billing.periods import BillShare, Cut, period

NOVEMBER, DECEMBER, JANUARY = (period(name) for name in ("2026-11", "2026-12", "2027-01"))
EUR = PriceBook(
    version="2026-11",
    currency="EUR",
    gpu_hour_micro={"premium": 4_000_000, "standard": 2_000_000, "free": 0},
    token_micro_per_million=0,
)
DOUBLE = OveragePrice(surcharge_ppm=PPM)


def tiered(*tiers: tuple[int, int]) -> PriceBook:
    falling = tuple(Tier(above=above, unit_micro=micro) for above, micro in tiers)
    rate = Rate(lane="standard", gpu_hour_micro=2_000_000, tiers=falling)
    return replace(EUR, rates=(rate,))


def costs(hourly_micro: int) -> OveragePrice:
    return OveragePrice(gpu_hour_micro=hourly_micro, currency="EUR")


def hours(count: int, lane: str = "standard", at: int = 0, job: str = "ftjob-1") -> LedgerRow:
    return replace(row(NOVEMBER.first_hour + at, count * HOUR_MS, job), lane=lane)


class Bills:
    """Months that are closed one after another, of the rows that were written until then."""

    def __init__(self, book: PriceBook = EUR) -> None:
        self.books = {book.version: book}
        self.rows: list[LedgerRow] = []
        self.closed: list[Statement] = []

    def write(self, *rows: LedgerRow) -> None:
        for written in rows:
            self.rows.append(replace(written, journal_offset=len(self.rows)))

    def close(
        self, price: OveragePrice | None, soft: int, discounts: tuple[Discount, ...] = ()
    ) -> int:
        """What the next month's bill is, net."""
        month = (NOVEMBER, DECEMBER, JANUARY)[len(self.closed)]
        late = Cut(offsets=self.closed[-1].cut if self.closed else (0,))
        cut = Cut(offsets=(len(self.rows),))
        billed = BilledMonth(
            tenant="acme",
            month=month,
            soft_gpu_ms=soft * HOUR_MS,
            currency="EUR",
            terms=BillingTerms(overage=price, discounts=discounts),
            closed={entry.period: entry for entry in self.closed},
        )
        share = BillShare(month=month, late=late, cut=cut)
        invoices = make_invoices(billed, select_usage(self.rows, share), self.books)
        statement = Statement(
            period=month.name,
            cut=cut.offsets,
            currency="EUR",
            soft_gpu_ms=soft * HOUR_MS,
            gpu_ms=0,
            amount_micro=0,
            bills=tuple(map(close_invoice, filter(is_billable, invoices))),
            terms=billed.terms,
        )
        self.closed.append(statement)
        return sum(bill.net_micro for bill in statement.bills)


def november(price: OveragePrice | None, soft: int, *rows: LedgerRow, book: PriceBook = EUR) -> int:
    bills = Bills(book)
    bills.write(*rows)
    return bills.close(price, soft)


@pytest.mark.parametrize(
    ("tiers", "price", "soft", "expected"),
    [
        # above 10 h each costs 0.50, and 1.00 above the limit of 10 h
        (((10, 500_000),), 1_000_000, 10, {10: 20, 30: 40, 60: 70}),
        (((20, 500_000),), 1_000_000, 10, {10: 20, 20: 40, 30: 50, 60: 80}),
        (((5, 1_000_000), (20, 0)), 3_000_000, 10, {5: 10, 10: 15, 11: 18, 60: 165}),
        (((10, 500_000),), 300_000, 10, {10: 20, 30: 30, 60: 45}),
        ((), 1_000_000, 10, {10: 20, 30: 60, 60: 120}),
        ((), 2_500_000, 0, {0: 0, 1: 2.5, 60: 150}),
    ],
)
def test_review2_m5_overage_replaces_lower_prices_after_tiers(
    tiers: tuple[tuple[int, int], ...], price: int, soft: int, expected: dict[int, float]
) -> None:
    book = tiered(*tiers)
    bills = {used: november(costs(price), soft, hours(used), book=book) / PPM for used in expected}
    assert bills == expected


@pytest.mark.parametrize("seed", range(60))
def test_review2_m5_more_use_never_costs_less(seed: int) -> None:
    draw = Random(seed)
    book = tiered((draw.randrange(1, 9), 1_500_000), (draw.randrange(9, 20), draw.choice((0, 9))))
    price = draw.choice((costs(draw.randrange(6) * PPM), OveragePrice(surcharge_ppm=PPM // 2)))
    soft = draw.randrange(20)
    rows: list[LedgerRow] = []
    paid = 0
    for _ in range(12):
        lane = draw.choice(("premium", "standard", "free"))
        job = f"ftjob-{lane}-{draw.randrange(3)}"
        rows.append(hours(draw.randrange(1, 6), lane, draw.randrange(9), job))
        now = november(price, soft, *rows, book=book)
        assert now >= paid, rows
        paid = now


@pytest.mark.parametrize("book", [EUR, tiered((10, 500_000), (40, 100_000))])
@pytest.mark.parametrize("price", [DOUBLE, costs(5_000_000), costs(300_000)])
@pytest.mark.parametrize("now", [None, DOUBLE, costs(9_000_000)])
@pytest.mark.parametrize("soft", [0, 10, 49, 50])
def test_review2_m6_nothing_is_kept_of_a_job_that_is_given_back(
    book: PriceBook, price: OveragePrice, now: OveragePrice | None, soft: int
) -> None:
    bills = Bills(book)
    bills.write(hours(50))
    discounts = (Discount(reference="K", rate_ppm=PPM // 2),)
    paid = bills.close(price, soft, discounts)
    assert paid > 0
    back = replace(hours(-50), kind="credit", used_gpu_ms=0, cause="platform_error")
    bills.write(back)
    assert bills.close(now, soft) == -paid
    bills.write(hours(3))  # late by two months
    if soft >= 3:  # and under the limit of its own month, whatever January's is
        assert bills.close(now, 0) == november(None, soft, hours(3), book=book) / 2


def test_review2_m6_overage_of_a_month_is_that_of_all_its_time_whenever_it_came() -> None:
    bills = Bills()
    bills.write(hours(6), hours(6, at=2, job="ftjob-2"))
    assert bills.close(DOUBLE, 10) == 24 * PPM + 4 * PPM
    back = replace(hours(-3), kind="credit", used_gpu_ms=0, cause="lost")
    bills.write(back)  # 9 hours are left: none is above the limit any more
    assert bills.close(DOUBLE, 10) == -6 * PPM - 4 * PPM
    bills.write(hours(4, at=5, job="ftjob-3"))
    assert bills.close(None, 10) == 8 * PPM + 6 * PPM
    closed = {entry.period: entry for entry in bills.closed[:2]}
    billed = BilledMonth(
        tenant="acme",
        month=JANUARY,
        soft_gpu_ms=None,
        currency="EUR",
        closed=closed,
        statement=bills.closed[2],
    )
    share = BillShare(month=JANUARY, late=Cut(offsets=closed["2026-12"].cut))
    (invoice,) = make_invoices(billed, select_usage(bills.rows, share), bills.books)
    (late,) = invoice.contract
    assert (late.period, late.reference) == ("2026-11", "2026-11")
    assert late.description == "GPU time above the soft limit, late for 2026-11: 100 % more"
