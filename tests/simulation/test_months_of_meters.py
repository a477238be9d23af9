"""Random months of answers, storage and GPU time: invoices, budgets, caps and exports agree.

The tenant's plan moves between books of several prices and currencies at any moment. What a meter
should cost is computed here by itself, moment by moment, from the words of the manual.
"""

from collections import Counter, defaultdict
from fractions import Fraction
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from schemas.account import (
    CloseInvoice,
    Event,
    InvoiceClosed,
    Limits,
    PeriodEnded,
    PlanTerms,
    PricesImported,
    SetPlan,
)
from schemas.admission import TENANT_BUDGET, AnswersCharged
from schemas.answers import AnswersCounted, AnswerUse, CountAnswers
from schemas.billing import AnswerPrices, PriceBook, Statement
from schemas.dataset import FileContent, FileDeleted, FileRegistered
from schemas.envelope import Message, Tick
from schemas.pool import UsageSliced
from schemas.storage import FileTerms
from schemas.streams import PARTITIONS
from schemas.units import HOUR_MS, MICRO, PPM, Micro, Ms, hour_of
from services.billing.app import ACCOUNTS
from services.exporter.domain.accounts import AccountFacts
from services.exporter.domain.focus import ExportedCharge, charges_of_use
from services.exporter.domain.invoices import charges_of_account
from services.gateway.accounts.prices import ViewedPrices
from services.gateway.billing.invoice_reads import find_tenant, read_invoices
from services.gateway.chat.spending import _answers_micro
from services.gateway.web.deps import Deps
from services.scheduler.domain.job.quota import window_of, with_answers
from services.scheduler.domain.job.state import TenantJobs
from tests.searches import YEARS
from tests.unit.services.billing.domain.test_decide import SEALED, create_tenant
from tests.unit.services.gateway.billing.used import lease, sliced
from tests.unit.services.gateway.view_rows import Records, fold, header, views_over
from tests.unit.services.scheduler.fold import Decider
from tests.unit.tunery.billing.test_invoice import BOOKS, DOLLARS
from tunery.billing.invoice import Invoice, close_invoice, is_billable
from tunery.billing.periods import CLOSE_AFTER_MS, Period, period


def prices(prompt: Micro, cached: Micro, completion: Micro) -> AnswerPrices:
    return AnswerPrices(
        prompt_micro_per_million=prompt,
        cached_micro_per_million=cached,
        completion_micro_per_million=completion,
    )


MONTHS = (period("2026-10"), period("2026-11"))
KEYS = ("key_1", "key_2")
CHEAP, DEAR = BOOKS["2026-11"], BOOKS["2026-12"]
PRICES: dict[str, PriceBook] = {
    book.version: book
    for book in (
        replace(
            CHEAP,
            storage_micro_per_gb_month=20_000,
            answers=prices(1_000_000, 333_333, 1_000_001),
        ),
        replace(DEAR, storage_micro_per_gb_month=200_003, answers=prices(10_000_000, 7, 9_999_999)),
        replace(DOLLARS, storage_micro_per_gb_month=29_999, answers=prices(77, 1, 0)),
        replace(CHEAP, version="unpriced"),
    )
}
LIMITS = Limits(soft_gpu_ms=10**12, hard_gpu_ms=10**13, concurrency=1)


class Meters:
    """Two months of a tenant as they come to the logs, and an own account of what they cost.

    exact: the cost of answers and storage by month, currency and meter. keys: of answers by key.
    """

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.account = Decider(ACCOUNTS, "acme", MONTHS[0].first_hour * HOUR_MS)
        self.records: Records = {}
        self.facts = AccountFacts()
        self.exported: list[ExportedCharge] = []
        self.offsets: Counter[str] = Counter()
        self.budgets = TenantJobs()
        self.book = CHEAP.version
        self.kept: dict[str, int] = {}
        self.measured_until = self.account.at
        self.exact: defaultdict[tuple[str, str, str], Fraction] = defaultdict(Fraction)
        self.keys: defaultdict[tuple[str, str, str], Fraction] = defaultdict(Fraction)
        for book in PRICES.values():
            self.account.fold(event := PricesImported(book=book, sha256="a" * 64))
            self.write("account", event, self.account.at)
        self.decide(create_tenant())

    def decide(self, command: Message) -> tuple[Event, ...]:
        events = self.account.when(command)
        for event in events:
            self.write("account", event, self.account.at)
        return events

    def write(self, stream: str, event: Any, at: Ms) -> None:
        """Project and export an event; charge answers to budgets as the reaction does."""
        self.offsets[stream] += 1
        key = "default" if stream == "pool" else "acme"
        written = header(stream, at=at, seq=self.offsets[stream], key=key)
        fold(self.records, written, event)
        if stream == "account":
            self.facts.fold("acme", event)
            self.exported += charges_of_account(written, event, "Tunery")
        if isinstance(event, UsageSliced):
            self.exported += charges_of_use(written, event, self.facts, "Tunery")
        if isinstance(event, AnswersCounted):
            charged = AnswersCharged(hour_utc=hour_of(at), costs=event.costs)
            self.budgets = replace(self.budgets, use=with_answers(self.budgets, charged))

    def answer(self, month: Period) -> None:
        """Tokens of a key, now and then known to be from memory only later."""
        read, late = self.random.randrange(10**7), self.random.random() < 0.2
        use = AnswerUse(
            key_id=self.random.choice(KEYS),
            model="base",
            requests=1,
            prompt_tokens=0 if late else read,
            cached_tokens=self.random.randrange(read + 1),
            completion_tokens=self.random.randrange(10**6),
            engine_ms=1,
        )
        self.decide(CountAnswers(uses=(use,)))
        book = PRICES[self.book]
        if book.answers is not None:
            new, written = use.prompt_tokens - use.cached_tokens, use.completion_tokens
            cost = new * book.answers.prompt_micro_per_million
            cost += use.cached_tokens * book.answers.cached_micro_per_million
            cost += written * book.answers.completion_micro_per_million
            self.exact[month.name, book.currency, "answers"] += Fraction(cost, PPM)
            self.keys[month.name, book.currency, use.key_id] += Fraction(cost, PPM)

    def keep_or_delete(self, number: int) -> None:
        if self.kept and self.random.random() < 0.4:
            name = self.random.choice(sorted(self.kept))
            del self.kept[name]
            event: Any = FileDeleted(file_id=name, blob="", report_blob=None)
        else:
            name, size = f"file-{number}", self.random.randrange(10**12)
            self.kept[name] = size
            terms = FileTerms(purpose="fine-tune", name=SEALED)
            content = FileContent(bytes=size, sha256="", blob="")
            event = FileRegistered(file_id=name, terms=terms, content=content)
        self.write("dataset", event, self.account.at)

    def pass_time(self, month: Period, at: Ms) -> None:
        """Charge stored bytes for their share of a month, by the price book in force until `at`."""
        book, size = PRICES[self.book], sum(self.kept.values())
        byte_ms = size * (at - self.measured_until) * book.storage_micro_per_gb_month
        cost = Fraction(byte_ms, 10**9 * (month.end_ms - month.first_hour * HOUR_MS))
        self.exact[month.name, book.currency, "storage"] += cost
        self.account.at = self.measured_until = at

    def move(self, *, next_month: bool) -> None:
        version = self.random.choice(sorted(PRICES))
        terms = PlanTerms(lane="standard", limits=LIMITS, price_version=version)
        self.decide(SetPlan(terms=terms, start="next_month" if next_month else "now"))
        scheduled = self.account.state.tenants["acme"].scheduled
        self.book = self.book if scheduled is not None else version

    def live(self, month: Period) -> None:
        """A month of random moments; each does something. The last may plan for the next month."""
        end = month.end_ms  # the month before is closed in the first hours
        moments = sorted(self.random.randrange(self.account.at, end) for _ in range(40))
        for number, at in enumerate(moments):
            self.pass_time(month, at)
            what = self.random.random()
            if what < 0.1:
                self.move(next_month=False)
            elif what < 0.5:
                self.answer(month)
            elif what < 0.8:
                self.keep_or_delete(number + month.first_hour)
            else:
                hour = self.random.randrange(MONTHS[0].first_hour, hour_of(at) + 1)
                version = self.random.choice(("usd", self.book))
                ref = replace(lease("acme", f"ftjob-{number}"), price_version=version)
                self.write("pool", sliced(ref, hour, self.random.randrange(1, HOUR_MS)), at)
        if self.random.random() < 0.7:
            self.move(next_month=True)
        self.pass_time(month, end)
        scheduled = self.account.state.tenants["acme"].scheduled
        if scheduled is not None:
            self.book = scheduled.terms.price_version

    async def close(self, month: Period) -> tuple[Invoice, ...]:
        """Close the month two hours after its end."""
        self.account.at = month.end_ms + CLOSE_AFTER_MS
        events = self.decide(Tick())
        (ended,) = [event for event in events if isinstance(event, PeriodEnded)]
        invoices = await self.invoices(month)
        bills = tuple(close_invoice(invoice) for invoice in invoices if is_billable(invoice))
        statement = Statement(
            period=month.name,
            cut=(self.offsets["pool"] + 1,) * PARTITIONS,
            incarnations=(0,) * PARTITIONS,
            currency=PRICES[ended.price_version].currency,
            soft_gpu_ms=ended.soft_gpu_ms,
            gpu_ms=0,
            amount_micro=0,
            bills=bills,
        )
        events = self.decide(CloseInvoice(statement=statement))
        assert any(isinstance(event, InvoiceClosed) for event in events)
        return invoices

    @property
    def deps(self) -> Deps:
        views = views_over(self.records)
        clock = SimpleNamespace(now_ms=lambda: self.account.at)
        return cast("Deps", SimpleNamespace(views=views, prices=ViewedPrices(views), clock=clock))

    async def invoices(self, month: Period) -> tuple[Invoice, ...]:
        return await read_invoices(self.deps, await find_tenant(self.deps, "acme"), month)


@pytest.mark.parametrize("seed", YEARS.beginnings(step=5))
async def test_review2_m3_money_invoices_budgets_caps_and_exports_agree(seed: int) -> None:
    meters = Meters(seed)
    closed: dict[str, tuple[Invoice, ...]] = {}
    for month in MONTHS:
        meters.live(month)
        await expect_caps(meters, month)
        closed[month.name] = await meters.close(month)
        for meter in ("answers", "storage"):
            charges = {invoice.currency: getattr(invoice, meter) for invoice in closed[month.name]}
            for currency in ("EUR", "USD"):
                billed = [charge.amount_micro for charge in charges.get(currency, ())]
                exact = meters.exact[month.name, currency, meter]
                assert abs(sum(billed) - exact) <= Fraction(3, 2) * len(billed), (meter, currency)
                if meter == "answers":
                    counted = counted_micro(meters, TENANT_BUDGET, month, currency)
                    assert abs(sum(billed) - counted) <= 1 + 2 * len(billed)
    for month in MONTHS:
        now = await meters.invoices(month)
        for before in closed[month.name]:
            same = next(entry for entry in now if entry.currency == before.currency)
            assert same.total_micro == before.total_micro, "a closed month has changed"
            rows = [
                charge.columns["BilledCost"]
                for charge in meters.exported
                if charge.columns["InvoiceId"] == f"{month.name}-{before.currency}"
            ]
            assert abs(sum(rows) * MICRO - before.total_micro) < 10_000


async def expect_caps(meters: Meters, month: Period) -> None:
    """The cap of a key without a budget counts its answers as budgets do."""
    for book in PRICES.values():
        for key_id in KEYS:
            used = await _answers_micro(meters.deps, "acme", key_id, book, month)
            exact = meters.keys[month.name, book.currency, key_id]
            assert abs(used - exact) <= 5
            assert abs(used - counted_micro(meters, key_id, month, book.currency)) <= 6


def counted_micro(meters: Meters, scope: str, month: Period, currency: str) -> Micro:
    """Usage that a budget has counted."""
    use = meters.budgets.use.get(window_of(scope, month.first_hour))
    return 0 if use is None else use.amounts.get(currency, 0)
