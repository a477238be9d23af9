"""Random years: late rows, repeated rows, month ends, two price books, changed limits and terms."""

from collections import Counter
from collections.abc import Iterable
from fractions import Fraction
from random import Random
from typing import TypeAlias

import pytest
from msgspec.structs import replace

from schemas.account import CloseInvoice, InvoiceClosed
from schemas.billing import (
    AnswerPrices,
    BillingTerms,
    Commitment,
    Discount,
    InvoiceAdjustment,
    Months,
    OveragePrice,
    PrepaidCredit,
    Rate,
    Statement,
    TaxRate,
    Tier,
)
from schemas.envelope import Tick
from schemas.pool import Role
from schemas.prepaid import GrantPrepaid, PrepaidExpired, PrepaidGranted
from schemas.units import DAY_MS, HOUR_MS, PPM, Ms, divide_half_even, month_of
from services.billing.app import ACCOUNTS
from tests.searches import YEARS
from tests.unit.services.billing.domain.test_decide import create_tenant
from tests.unit.services.scheduler.fold import Decider, of
from tests.unit.tunery.billing.test_invoice import BOOKS, DOLLARS, row
from tunery.billing.answers import AnswersOfMonth
from tunery.billing.currency import minor_unit_micro
from tunery.billing.invoice import BilledMonth, Invoice, close_invoice, is_billable, make_invoices
from tunery.billing.lines import LedgerRow, Line, select_usage
from tunery.billing.periods import CLOSE_AFTER_MS, BillShare, Cut, Period, cut_of, period, share_of
from tunery.billing.storage import FOREVER, BookPeriod, StorageUse, StoredObject, storage_of_month
from tunery.billing.volume import MonthLine
from tunery.plan.price import usage_micro

Use: TypeAlias = tuple[Role, str, bool]  # work, accelerator, spot
ROLES: tuple[Role, ...] = ("train", "eval")
MONTHS = tuple(  # with a year's end
    period(f"{year}-{number:02}")
    for year, numbers in ((2026, range(7, 13)), (2027, range(1, 7)))
    for number in numbers
)
# The second book has rates by work and hardware; of each use the one that says most counts.
RATES: dict[Use, int] = {
    ("train", "h1", False): 7_654_321,
    ("train", "h1", True): 2_345_678,
    ("eval", "", False): 1_111_111,
    ("eval", "h1", False): 3_333_333,
}
# Some of them fall with a month's hours; and all tokens of that book, with its millions.
TIERS: dict[Use, tuple[Tier, ...]] = {
    ("train", "h1", False): (Tier(above=1, unit_micro=5_432_109), Tier(above=2, unit_micro=1)),
    ("eval", "", False): (Tier(above=1, unit_micro=0),),
}
EXCEPTIONS = tuple(
    Rate(
        lane="standard",
        gpu_hour_micro=micro,
        role=role,
        device=accelerator or None,
        spot=spot,
        tiers=TIERS.get((role, accelerator, spot), ()),
    )
    for (role, accelerator, spot), micro in RATES.items()
)
TOKEN_TIERS = (Tier(above=50, unit_micro=1_000_000), Tier(above=90, unit_micro=333_333))
PRICES = {
    **BOOKS,
    "2026-12": replace(
        BOOKS["2026-12"],
        rates=EXCEPTIONS,
        token_micro_per_million=1_234_567,
        token_tiers=TOKEN_TIERS,
        storage_micro_per_gb_month=20_001,
        answers=AnswerPrices(
            prompt_micro_per_million=333_333,
            cached_micro_per_million=1,
            completion_micro_per_million=1_000_001,
        ),
    ),
    "usd": replace(
        DOLLARS,
        token_micro_per_million=7,
        storage_micro_per_gb_month=29_999,
        answers=AnswerPrices(
            prompt_micro_per_million=0,
            cached_micro_per_million=0,
            completion_micro_per_million=77,
        ),
    ),
}
VERSIONS = ("2026-11", "2026-12", "usd")
PARTITIONS = 2


class Year:
    """The ledger of a year as it is written, and what was closed of it."""

    def __init__(self, seed: int) -> None:
        self.seed, self.random = seed, Random(seed)
        self.rows: dict[tuple[int, int], LedgerRow] = {}
        self.charged: dict[tuple[str, int, Role, str, bool], int] = {}
        self.trained: Counter[tuple[str, int, Role, str, bool]] = Counter()
        self.written_in: dict[tuple[int, int], Period] = {}
        self.kept: list[StoredObject] = []
        self.adjustments: dict[str, list[InvoiceAdjustment]] = {}
        self.closed: list[Statement] = []
        self.issued: dict[str, tuple[Invoice, ...]] = {}
        self.account = Decider(ACCOUNTS, "acme", MONTHS[0].first_hour * HOUR_MS)
        self.account.accept(create_tenant())

    def write(self, now: int) -> None:
        """Use or a credit of this month or an earlier one; a repeat has the same position."""
        month = MONTHS[max(0, now - self.random.choice((0, 0, 0, 1, 2)))]
        number = self.random.randrange(8)
        job, hour = f"ftjob-{number}", month.first_hour + self.random.randrange(720)
        gpu_ms = self.random.randrange(1, HOUR_MS)
        role: Role = self.random.choice(ROLES)
        accelerator, spot = self.random.choice(("", "h1")), self.random.random() < 0.5
        use = (job, hour, role, accelerator, spot)
        used = self.charged.get(use, 0)
        used_row = replace(
            row(hour, gpu_ms, job),
            price_version=VERSIONS[number % len(VERSIONS)],
            role=role,
            accelerator=accelerator,
            spot=spot,
            tokens=self.random.choice((0, self.random.randrange(10**8))),
        )
        if used_row.tokens and self.random.random() < 0.2:  # a checkpoint, and no time since
            gpu_ms = 0
            used_row = replace(used_row, used_gpu_ms=0, gpu_ms=0)
        if used and self.random.random() < 0.5:  # a credit takes back use of its own hour
            gpu_ms = -self.random.randrange(1, used + 1)
            tokens = -self.random.randrange(self.trained[use] + 1)
            used_row = replace(
                used_row, kind="credit", used_gpu_ms=0, gpu_ms=gpu_ms, cause="lost", tokens=tokens
            )
        self.charged[use] = used + gpu_ms
        self.trained[use] += used_row.tokens
        partition = self.random.randrange(PARTITIONS)
        offset = sum(at[0] == partition for at in self.rows)
        written = replace(used_row, journal_partition=partition, journal_offset=offset)
        self.written_in[partition, offset] = MONTHS[now]
        for _ in range(self.random.choice((1, 1, 2))):
            self.rows[partition, offset] = written

    def keep(self, month: Period) -> None:
        """A file or a model of this month; some are deleted, at once or months later."""
        since = month.first_hour * HOUR_MS + self.random.randrange(27 * DAY_MS)
        until = since + self.random.randrange(200 * DAY_MS)
        self.kept.append(
            StoredObject(
                bytes=self.random.choice((1, self.random.randrange(10**13))),
                since=since,
                until=self.random.choice((FOREVER, until, since + 1)),
            )
        )

    def plan(self, month: Period) -> list[BookPeriod]:
        """The tenant's books of a month: its plan moves once or twice, at any moment of it."""
        draw = Random(f"{self.seed}/{month.name}/plan")
        first, end = month.first_hour * HOUR_MS, month.end_ms
        moments = [first, *(draw.randrange(first, end) for _ in range(draw.randrange(3)))]
        return [BookPeriod(since, draw.choice((*VERSIONS, ""))) for since in sorted(moments)]

    def answered(self, month: Period) -> tuple[AnswersOfMonth, ...]:
        """Tokens of a month under each book, which are all known when it is closed."""
        draw = Random(f"{self.seed}/{month.name}/answers")
        uses = []
        for version in sorted({book.price_version for book in self.plan(month)}):
            read = draw.choice((0, draw.randrange(10**9)))
            uses.append(
                AnswersOfMonth(
                    price_version=version,
                    prompt_tokens=read,
                    cached_tokens=draw.randrange(read + 1),
                    completion_tokens=draw.randrange(10**8),
                )
            )
        return tuple(uses)

    def stored(self, month: Period, now: Ms) -> tuple[StorageUse, ...]:
        """As it is known `now`: what will be deleted later is still there."""
        known = (
            replace(entry, until=entry.until if entry.until <= now else FOREVER)
            for entry in self.kept
            if entry.since <= now
        )
        return storage_of_month(known, self.plan(month), month, now)

    def adjust(self, month: Period) -> None:
        entries = self.adjustments.setdefault(month.name, [])
        entries.append(
            InvoiceAdjustment(
                reference=f"T-{len(entries)}",
                amount_micro=self.random.randrange(-(10**6), 10**6),
                currency=self.random.choice(("EUR", "USD")),
                reason="contract",
            )
        )

    def prepay(self, month: Period) -> None:
        """A credit, or one that was sent before; some have expired when they come."""
        self.account.at = max(self.account.at, month.first_hour * HOUR_MS)
        number = self.random.randrange(6)
        credit = PrepaidCredit(
            reference=f"P-{number}",
            amount_micro=self.random.randrange(1, 2_000) * 10_000,
            currency=self.random.choice(("EUR", "USD")),
            last_month=self.random.choice((None, MONTHS[number].name, MONTHS[-number - 1].name)),
        )
        for _ in range(self.random.choice((1, 2))):
            self.account.when(GrantPrepaid(credit=credit))

    def contract(self) -> BillingTerms:
        """Other terms at each closing: closed months keep theirs."""
        names = [month.name for month in MONTHS]
        discounts = tuple(
            Discount(
                reference=f"K-{number}",
                rate_ppm=self.random.randrange(1, 500_000),
                lane=self.random.choice((None, "standard", "free")),
                months=Months(first=self.random.choice((None, *names[:6]))),
            )
            for number in range(self.random.randrange(3))
        )
        surcharge = OveragePrice(surcharge_ppm=self.random.randrange(1, 10**6))
        dearer = OveragePrice(gpu_hour_micro=self.random.randrange(10**7), currency="EUR")
        least = Commitment(
            reference="K-9", amount_micro=self.random.randrange(1, 10**8), currency="EUR"
        )
        return BillingTerms(
            discounts=discounts,
            overage=self.random.choice((None, surcharge, dearer)),
            commitment=self.random.choice((None, least)),
        )

    def close(self, month: Period) -> None:
        rates = tuple(
            TaxRate(name=f"tax {rate}", rate_ppm=rate)
            for rate in self.random.sample((0, 70_000, 190_000, 333_333), 2)
        )
        ends = Counter(at[0] for at in self.rows)
        cut = Cut(offsets=tuple(ends[at] for at in range(PARTITIONS)))
        late = cut_of(self.closed[-1]) if self.closed else Cut(offsets=(0,) * PARTITIONS)
        billed = BilledMonth(
            tenant="acme",
            month=month,
            soft_gpu_ms=self.random.randrange(10 * HOUR_MS),
            currency="EUR",
            terms=replace(self.contract(), taxes=rates),
            storage=self.stored(month, month.end_ms + CLOSE_AFTER_MS),
            answers=self.answered(month),
            adjustments=tuple(self.adjustments.get(month.name, ())),
            closed={entry.period: entry for entry in self.closed},
        )
        share = BillShare(month=month, late=late, cut=cut)
        drafts = make_invoices(billed, select_usage(self.rows.values(), share), PRICES)
        statement = Statement(
            period=month.name,
            cut=cut.offsets,
            currency="EUR",
            soft_gpu_ms=billed.soft_gpu_ms or 0,
            gpu_ms=0,
            amount_micro=0,
            bills=tuple(close_invoice(draft) for draft in drafts if is_billable(draft)),
            terms=billed.terms,
        )
        self.account.at = max(self.account.at, month.end_ms + CLOSE_AFTER_MS)
        self.account.accept(Tick())
        event, *_ = self.account.when(CloseInvoice(statement=statement))
        self.closed.append(of((event,), InvoiceClosed).statement)
        self.issued[month.name] = self.invoices(month)

    def invoices(self, month: Period) -> tuple[Invoice, ...]:
        statement = next((entry for entry in self.closed if entry.period == month.name), None)
        billed = BilledMonth(
            tenant="acme",
            month=month,
            soft_gpu_ms=None,
            currency="EUR",
            adjustments=tuple(self.adjustments.get(month.name, ())),
            closed={entry.period: entry for entry in self.closed if entry.period < month.name},
            statement=statement,
            storage=() if statement is None else self.stored(month, FOREVER),
            answers=() if statement is None else self.answered(month),
        )
        usage = select_usage(self.rows.values(), share_of(month, self.closed))
        return make_invoices(billed, usage, PRICES)


def random_year(seed: int) -> Year:
    year = Year(seed)
    for now, month in enumerate(MONTHS):
        for _ in range(year.random.randrange(6)):
            year.write(now)
        if year.random.random() < 0.5:
            year.adjust(month)
        if year.random.random() < 0.3:
            year.keep(month)
        if year.random.random() < 0.5:
            year.prepay(month)
        if now and year.random.random() < 0.8:
            for open_month in MONTHS[len(year.closed) : now]:
                year.close(open_month)
    return year


@pytest.mark.parametrize("first", YEARS.beginnings(step=20))
def test_money_conserved_in_random_years(first: int) -> None:
    late_tiers = 0
    for seed in range(first, first + 40):
        year = random_year(seed)
        invoices = [invoice for month in MONTHS for invoice in year.invoices(month)]
        for name, issued in year.issued.items():
            assert year.invoices(period(name)) == issued, seed
        for invoice in invoices:
            expect_sums(invoice)
            expect_terms(invoice, year)
        late_tiers += expect_volume(invoices, year)
        expect_storage(invoices, year)
        expect_answers(invoices, year)
        expect_prepaid(year)
        lines = [line for invoice in invoices for line in invoice.lines]
        assert sum(line.gpu_ms for line in lines) == sum(row.gpu_ms for row in year.rows.values())
        costs = Counter[str]()
        for line in lines:
            costs[line.job_id] += line.amount_micro
        times, tokens = Counter[str](), Counter[str]()
        for written in year.rows.values():
            times[written.job_id] += written.gpu_ms * hourly(written)
            per_million = PRICES[written.price_version].token_micro_per_million
            tokens[written.job_id] += written.tokens * per_million
        for job, time in times.items():
            assert costs[job] == usage_micro(time) + divide_half_even(tokens[job], PPM), seed
    assert late_tiers > 0


def hourly(written: LedgerRow) -> int:
    """The price of a row, looked up as a person would."""
    own, general = written.accelerator, PRICES[written.price_version].gpu_hour_micro["standard"]
    if written.price_version != "2026-12":
        return general
    elsewhere = RATES.get((written.role, "", written.spot), general)
    return RATES.get((written.role, own, written.spot), elsewhere)


def expect_volume(invoices: Iterable[Invoice], year: Year) -> bool:
    """What tiers took off a month on all its bills is what its quantity says; whether late ones do.

    A late credit gives back what its use had been lowered by, and no more.
    """
    reduction, bills = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for invoice in invoices:
        for line in invoice.volume:
            name = line.reference.removesuffix(f"/{line.period}")
            reduction[line.period, name] += line.amount_micro
            bills[line.period, name] += 1
    times, tokens = Counter[tuple[str, Use]](), Counter[str]()
    for written in year.rows.values():
        if written.price_version == "2026-12":
            month, role = month_of(written.hour_utc), written.role
            own: Use = (role, written.accelerator, written.spot)
            times[month, own if own in RATES else (role, "", written.spot)] += written.gpu_ms
            tokens[month] += written.tokens
    expected = {
        (month, f"2026-12/standard/{use[0]}{'/h1' if use[1] else ''}/not spot"): falling(
            quantity, HOUR_MS, RATES[use], TIERS[use]
        )
        for (month, use), quantity in times.items()
        if use in TIERS
    }
    expected |= {
        (month, "2026-12/standard/tokens"): falling(quantity, PPM, 1_234_567, TOKEN_TIERS)
        for month, quantity in tokens.items()
    }
    assert {key: -micro for key, micro in reduction.items() if micro} == {
        key: micro for key, micro in expected.items() if micro
    }
    return max(bills.values(), default=0) > 1


def expect_storage(invoices: Iterable[Invoice], year: Year) -> None:
    """Each closed month has what was kept in it, at the price of the book that held at the time."""
    billed: dict[tuple[str, str], int] = {}
    for invoice in invoices:
        for charge in invoice.storage:
            billed[invoice.period, charge.price_version] = charge.amount_micro
            assert PRICES[charge.price_version].currency == invoice.currency
    for statement in year.closed:
        month = period(statement.period)
        first, end, held = month.first_hour * HOUR_MS, month.end_ms, year.plan(month)
        exact = Counter[str]()
        for book, following in zip(held, (*held[1:], BookPeriod(end, "")), strict=True):
            for entry in year.kept:
                kept = range(max(book.since, entry.since), min(following.since, entry.until))
                exact[book.price_version] += entry.bytes * len(kept)
        for version, priced in PRICES.items():
            cost = Fraction(
                exact[version] * priced.storage_micro_per_gb_month, (end - first) * 10**9
            )
            assert abs(billed.pop((month.name, version), 0) - cost) <= 1
    assert not billed


def expect_answers(invoices: Iterable[Invoice], year: Year) -> None:
    """Each closed month has its tokens at the prices of their moment, to half a millionth each."""
    billed: dict[tuple[str, str], int] = {}
    for invoice in invoices:
        for charge in invoice.answers:
            billed[invoice.period, charge.price_version] = charge.amount_micro
            assert PRICES[charge.price_version].currency == invoice.currency
    for statement in year.closed:
        for use in year.answered(period(statement.period)):
            book = PRICES.get(use.price_version)
            if book is None or book.answers is None:
                continue
            prices = book.answers
            exact = Fraction(
                (use.prompt_tokens - use.cached_tokens) * prices.prompt_micro_per_million
                + use.cached_tokens * prices.cached_micro_per_million
                + use.completion_tokens * prices.completion_micro_per_million,
                10**6,
            )
            amount = billed.pop((statement.period, use.price_version), 0)
            assert abs(amount - exact) <= Fraction(3, 2)
    assert not billed


def falling(quantity: int, per: int, listed: int, tiers: tuple[Tier, ...]) -> int:
    """What is off a quantity, unit by unit: each part at the price of its own tier."""
    parts = [0, *(tier.above * per for tier in tiers), max(quantity, tiers[-1].above * per)]
    prices = [listed, *(tier.unit_micro for tier in tiers)]
    paid = Fraction(0)
    for price, first, end in zip(prices, parts, parts[1:], strict=False):
        paid += Fraction(max(min(quantity, end) - first, 0) * price, per)
    return round(Fraction(quantity * listed, per) - paid)


def expect_sums(invoice: Invoice) -> None:
    """Lines of all kinds, rounding and taxes are the total, in whole minor units."""
    exact = sum(line.amount_micro for line in invoice.lines)
    exact += sum(line.amount_micro for line in (*invoice.volume, *invoice.contract))
    exact += stored_micro(invoice)
    exact += sum(entry.amount_micro for entry in invoice.adjustments)
    taxes = sum(tax.amount_micro for tax in invoice.taxes)
    assert exact + invoice.rounding_micro + taxes == invoice.total_micro
    prepaid = sum(use.amount_micro for use in invoice.prepaid)
    assert invoice.due_micro == invoice.total_micro - prepaid + invoice.carried_micro
    if invoice.number is not None:
        assert invoice.due_micro == max(invoice.total_micro, 0) - prepaid >= 0
    unit = minor_unit_micro(invoice.currency)
    assert invoice.net_micro % unit == taxes % unit == 0
    assert abs(invoice.rounding_micro) * 2 <= unit


def expect_terms(invoice: Invoice, year: Year) -> None:
    """Each contract line is what the terms of the closing say, computed here once more."""
    closed = {entry.period: entry.terms for entry in year.closed}
    terms = closed.get(invoice.period) or BillingTerms()
    of_kind = Counter[str]()
    for line in invoice.contract:
        of_kind[line.kind] += line.amount_micro
    monthly: tuple[Line | MonthLine, ...] = (*invoice.lines, *invoice.volume)
    exact = sum(
        (
            Fraction(line.amount_micro * discount.rate_ppm, PPM)
            for line in monthly
            for discount in (closed.get(month_of_line(line)) or BillingTerms()).discounts
            if discount.lane in (None, line.lane)
            and (discount.months.first or "") <= month_of_line(line)
        ),
        Fraction(0),
    )
    assert abs(of_kind["discount"] + exact) <= Fraction(len(invoice.contract), 2)
    if terms.overage is None or invoice.overage_gpu_ms == 0:
        assert not any(line.reference == "" for line in invoice.contract)
    least = terms.commitment
    own = sum(line.amount_micro for line in monthly if month_of_line(line) == invoice.period)
    own += stored_micro(invoice)
    own += sum(
        line.amount_micro
        for line in invoice.contract
        if line.kind != "commitment" and line.period == invoice.period
    )
    missing = 0 if least is None or invoice.currency != "EUR" else least.amount_micro - own
    assert of_kind["commitment"] == max(missing, 0)


def stored_micro(invoice: Invoice) -> int:
    stored = sum(charge.amount_micro for charge in invoice.storage)
    return stored + sum(charge.amount_micro for charge in invoice.answers)


def month_of_line(line: Line | MonthLine) -> str:
    return line.period if isinstance(line, MonthLine) else line.starts_at[:7]


def expect_prepaid(year: Year) -> None:
    """After each event of the log, every credit is what was used, has expired and is left."""
    balances: dict[str, Counter[str]] = {}
    state, granted = ACCOUNTS.initial, dict[str, PrepaidGranted]()
    for ctx, events in year.account.journal:
        for event in events:
            state = ACCOUNTS.evolve(state, event, ctx)
            if isinstance(event, PrepaidGranted):
                assert event.credit.reference not in balances
                granted[event.credit.reference] = event
                balances[event.credit.reference] = Counter(left=event.credit.amount_micro)
            elif isinstance(event, PrepaidExpired):
                balances[event.reference]["left"] -= event.amount_micro
                balances[event.reference]["expired"] += event.amount_micro
            elif isinstance(event, InvoiceClosed):
                for bill in event.statement.bills:
                    for use in bill.prepaid:
                        of_use = granted[use.reference]
                        last = of_use.credit.last_month or event.statement.period
                        assert of_use.first_month <= event.statement.period <= last
                        assert of_use.credit.currency == bill.currency
                        balances[use.reference]["left"] -= use.amount_micro
                        balances[use.reference]["used"] += use.amount_micro
                        assert balances[use.reference]["left"] == use.left_micro
            for reference, micro in balances.items():
                assert min(micro["left"], micro["used"], micro["expired"]) >= 0
                assert micro.total() == granted[reference].credit.amount_micro
        kept = state.tenants["acme"].prepaid
        assert set(kept) == set(balances)
        for reference, micro in balances.items():
            balance = kept[reference]
            now = (balance.left_micro, balance.used_micro, balance.expired_micro)
            assert now == (micro["left"], micro["used"], micro["expired"])
