"""Random months of a tenant: late credits, new terms, plans and currencies at the worst moments.

Files come and go, models answer, and money is paid in advance. Now and then the owner of `account`
is away, at times for more than a month: it finds what was scheduled, and months that have ended.
What happens goes to the decider of `account`, to the ledger, and as plain facts to the second
biller. Months are closed through the port that production closes them through.
"""

from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace as replaced
from random import Random
from typing import Any, Final

from msgspec import to_builtins
from msgspec.structs import replace

from schemas.account import (
    LANES,
    AdjustInvoice,
    CloseInvoice,
    CreditNoteIssued,
    ImportPrices,
    InvoiceAdjusted,
    InvoiceClosed,
    Limits,
    PeriodEnded,
    PlanTerms,
    SetBillingTerms,
    SetPlan,
)
from schemas.answers import AnswersCounted, AnswerUse, CountAnswers
from schemas.billing import (
    AnswerPrices,
    Bill,
    BillingTerms,
    InvoiceAdjustment,
    PrepaidCredit,
    PriceBook,
    Rate,
    Statement,
    Tier,
)
from schemas.dataset import FileContent, FileDeleted, FileRegistered
from schemas.envelope import Header, Message, Rejected, Tick
from schemas.lifetime import VersionErased
from schemas.model import Lineage, VersionDeleted, VersionPublished, VersionTerms
from schemas.prepaid import GrantPrepaid, PrepaidGranted, RevokePrepaid
from schemas.sealed import Sealed
from schemas.storage import FileTerms
from schemas.streams import GLOBAL, PARTITIONS
from schemas.training import BlobFile
from schemas.units import DAY_MS, HOUR_MS, PPM, Ms
from services.billing.app import ACCOUNTS
from services.billing.ports import Books
from services.gateway.billing.domain.contract_terms import BillingTermsRequest, billing_terms
from tests import biller
from tests.unit.services.billing.domain.test_decide import create_tenant
from tests.unit.services.scheduler.fold import Decider, header_of
from tunery.billing.lines import LedgerRow
from tunery.billing.periods import BillShare, Cut, cut_of, period

MONTHS: Final = tuple(
    period(f"{year}-{number:02}")
    for year, numbers in ((2026, range(8, 13)), (2027, range(1, 6)))
    for number in numbers
)
CURRENCIES: Final = ("EUR", "EUR", "USD", "JPY")
UNSEALED: Final = Sealed(key_id="", nonce=b"", ciphertext=b"")
VERSION: Final = VersionTerms(
    model_id="",
    series="s",
    lineage=Lineage(
        job_id="ftjob-1",
        base_id="b",
        base_sha256="",
        dataset_version="",
        training_sha256="",
        config_sha256="",
        steps=1,
        verdict="pass",
        scores_sha256="",
    ),
)
Write = Callable[[LedgerRow], Awaitable[None]]
Project = Callable[[Header, Message], Awaitable[None]]


async def keep_no_row(*_: Any) -> None:
    """Do not write what happened: the bills are made of what is in memory."""


class FoulMonths:
    """One tenant, and all that happens to it; `closed`: how each month was."""

    def __init__(
        self, seed: int, books: Books, write: Write = keep_no_row, project: Project = keep_no_row
    ) -> None:
        self.random, self.tenant = Random(seed), f"year-{seed}"
        self.ledger, self._write, self._project = books, write, project
        self.decider = Decider(ACCOUNTS, self.tenant, MONTHS[0].first_hour * HOUR_MS)
        self.books = {book.version: book for book in self._books(seed)}
        self.closed: list[Statement] = []
        self.done = Counter[str]()
        self.rows: list[LedgerRow] = []
        self.adjustments: list[InvoiceAdjusted] = []
        self.notes: list[CreditNoteIssued] = []
        self.counted: list[tuple[str, AnswersCounted]] = []  # with its month
        self._ends = [0] * PARTITIONS
        self._left: dict[tuple[Any, ...], list[int]] = {}  # of an hour's use: time, tokens
        self._closing: list[tuple[Ms, PeriodEnded]] = []
        self._now = self._away_until = self.decider.at
        self._deleted = set[str]()  # models that can be restored
        self._plan = create_tenant().terms
        self._pending: PlanTerms | None = None
        plain = {version: to_builtins(book) for version, book in self.books.items()}
        self.facts = biller.Tenant(plain, [month.name for month in MONTHS])

    async def play(self) -> None:
        """All months but the last are closed, the last may be running."""
        for book in self.books.values():
            await self._send(ImportPrices(book=book, sha256="a" * 64), GLOBAL)
        await self._send(replace(create_tenant(), terms=self._some_plan()))
        self._plan = self.decider.state.tenants[self.tenant].terms
        self.facts.held.append((self._now, self._plan.price_version))
        for number, month in enumerate(MONTHS[:-1]):
            first = month.first_hour * HOUR_MS
            moments = [self.random.randrange(first, month.end_ms) for _ in range(12)]
            moments.append(month.end_ms + self.random.randrange(2 * HOUR_MS))  # on the 1st
            for at in sorted(moments):
                await self._until(at)
                await self._act(number)
            for _ in range(self.random.randrange(4)):
                await self._use(number)
        await self._until(MONTHS[-1].end_ms - DAY_MS)
        while self._closing and self._closing[0][1].period < MONTHS[-1].name:
            await self._close(*self._closing.pop(0))

    async def _act(self, number: int) -> None:
        """Play one event of the tenant; while `account` has no owner, nothing is sent to it."""
        away = self._now < self._away_until
        draw = self.random.random()
        if draw < 0.17:
            await self._use(number)
        elif draw < 0.3:
            await self._store()
        elif away:
            return
        elif draw < 0.42:
            await self._change_plan(self.random.choice(("now", "next_month")))
        elif draw < 0.57:
            await self._change_terms(number)
        elif draw < 0.66:
            await self._adjust(number)
        elif draw < 0.82:
            await self._answer()
        elif draw < 0.96:
            await self._prepay()
        else:
            self._away_until = self._now + self.random.randrange(50 * DAY_MS)

    # --- time

    async def _until(self, at: Ms) -> None:
        """Months end, scheduled plans come into force, and closings that took their time happen."""
        for month in MONTHS:
            if self._now < month.end_ms <= at:
                if self._away_until <= month.end_ms:
                    await self._close_until(month.end_ms)
                self.facts.soft[month.name] = self._plan.limits.soft_gpu_ms
                if self._pending is not None:
                    self._plan, self._pending = self._pending, None
                    self.facts.held.append((month.end_ms, self._plan.price_version))
                self._now = month.end_ms
                if self._away_until <= self._now:
                    await self._wake()
        self._now = max(at, self._now)
        if self._away_until <= self._now:
            await self._close_until(at)
            await self._wake()

    async def _wake(self) -> None:
        """Decide commands that arrived before the owner checks its deadlines."""
        self.decider.at = max(self._now, self.decider.at)
        while self.random.random() < 0.2:
            await self.random.choice((self._answer, self._prepay))()
        await self._tick()

    async def _close_until(self, at: Ms) -> None:
        while self._closing and self._closing[0][0] < at:
            await self._close(*self._closing.pop(0))

    async def _tick(self) -> None:
        for event in await self._send(Tick()):
            if isinstance(event, PeriodEnded):
                delay = self.random.choice((0, HOUR_MS, 3 * DAY_MS, 40 * DAY_MS))
                self._closing.append((self.decider.at + self.random.randrange(delay + 1), event))

    async def _close(self, at: Ms, ended: PeriodEnded) -> None:
        self.decider.at = self._now = max(at, self._now)
        incarnations = (0,) * PARTITIONS
        before = cut_of(ended.before) if ended.before else Cut(offsets=incarnations)
        share = BillShare(
            month=period(ended.period),
            late=replace(before, incarnations=incarnations),
            cut=Cut(offsets=tuple(self._ends), incarnations=incarnations),
        )
        statement = await self.ledger.statement(self.tenant, ended, share)
        events = await self._send(CloseInvoice(statement=statement))
        self.closed += [event.statement for event in events if isinstance(event, InvoiceClosed)]
        self.facts.paid.append(("closed", ended.period))
        await self._tick()

    # --- what happens

    async def _change_plan(self, start: str) -> None:
        terms = self._some_plan()
        events = await self._send(
            SetPlan(terms=terms, start="now" if start == "now" else "next_month")
        )
        if self._count("plan", events) and start == "now":
            self._plan, self._pending = terms, None
            self.facts.held.append((self._now, terms.price_version))
        elif not _refused(events):
            self._pending = terms

    async def _change_terms(self, number: int) -> None:
        near = [month.name for month in MONTHS[max(number - 1, 0) : number + 3]]
        body = self._some_terms()
        month = self.random.choice((None, None, *near))
        terms = billing_terms(BillingTermsRequest.model_validate(body), None, "EUR")
        events = await self._send(SetBillingTerms(terms=terms, from_month=month))
        if self._count("terms", events):
            running = [entry.name for entry in MONTHS if entry.end_ms > self.decider.at]
            self.facts.terms[month or running[0]] = body

    async def _adjust(self, number: int) -> None:
        """For the current month, or of an invoice that is closed: then it is a credit note."""
        adjustment = InvoiceAdjustment(
            reference=f"T-{self.done['adjusted']}",
            amount_micro=self.random.randrange(1, 10**7) * self.random.choice((-1, 1)),
            currency=self.random.choice(CURRENCIES),
            reason="contract",
        )
        month = self.random.choice((None, *(month.name for month in MONTHS[:number])))
        for event in await self._send(AdjustInvoice(adjustment=adjustment, period=month)):
            if isinstance(event, InvoiceAdjusted):
                self.done["adjusted"] += 1
                self.adjustments.append(event)
                key = event.period, adjustment.currency
                self.facts.adjustments[key] += adjustment.amount_micro
            elif isinstance(event, CreditNoteIssued):
                self.done["adjusted"] += 1
                self.done["noted"] += 1
                self.notes.append(event)
                self.facts.notes.append(
                    biller.Note(event.period, adjustment.currency, adjustment.amount_micro)
                )

    async def _answer(self) -> None:
        """Tokens of models. Some were in memory, of questions that an earlier record has."""
        read = self.random.choice((0, self.random.randrange(10**8)))
        use = AnswerUse(
            key_id="key-1",
            model="base",
            requests=1,
            prompt_tokens=read,
            cached_tokens=self.random.choice((0, 1_000, self.random.randrange(read + 1))),
            completion_tokens=self.random.choice((0, self.random.randrange(10**7))),
            engine_ms=1,
        )
        for event in await self._send(CountAnswers(uses=(use,))):
            if isinstance(event, AnswersCounted):
                self.counted.append((self._month, event))
        tokens = use.prompt_tokens, use.cached_tokens, use.completion_tokens
        version = self._plan.price_version
        self.facts.answered.append(biller.Answered(self._month, version, *tokens))

    @property
    def _month(self) -> str:
        return next(month.name for month in MONTHS if self._now < month.end_ms)

    async def _store(self) -> None:
        """A file or a model comes, a file goes, a model goes at once or is only deleted."""
        draw = self.random
        kept = sorted(name for name, kept in self.facts.kept.items() if kept.until is None)
        name = draw.choice(kept) if kept and draw.random() < 0.5 else ""
        if name.startswith("file"):
            await self._lose(name, FileDeleted(file_id=name, blob="", report_blob=None))
        elif name in self._deleted:
            await self._lose(name, VersionErased(model_id=name, files=(), job_id="ftjob-1"))
        elif name and draw.random() < 0.5:
            await self._lose(name, VersionDeleted(model_id=name))
        elif name:  # and billed on
            self._deleted.add(name)
            await self._tell("model", VersionDeleted(model_id=name, erase_at=self._now + DAY_MS))
        else:
            size = draw.choice((1, draw.randrange(10**13)))
            name = f"{draw.choice(('file', 'model'))}-{len(self.facts.kept)}"
            self.facts.kept[name] = biller.Kept(size, self._now)
            await self._tell(*_stored(name, size))

    async def _lose(self, name: str, event: Message) -> None:
        self.facts.kept[name] = replaced(self.facts.kept[name], until=self._now)
        await self._tell("dataset" if isinstance(event, FileDeleted) else "model", event)

    async def _tell(self, stream: str, event: Message) -> None:
        self.done["stored"] += 1
        await self._project(header_of(stream, self.tenant, self._now, self.done["stored"]), event)

    async def _prepay(self) -> None:
        """A credit, one that was sent before, or what is left of one is taken back."""
        draw = self.random
        prices = self.books[self._plan.price_version].currency
        balances = self.decider.state.tenants[self.tenant].prepaid
        if balances and draw.random() < 0.3:
            name = draw.choice(sorted(balances))
            carried = name.startswith("carried:")
            events = await self._send(RevokePrepaid(reference=name))
            refused = carried and balances[name].credit.currency == prices
            assert _refused(events) == refused, (self.tenant, self._month, events)
            if not refused:
                self.done["revoked"] += 1
                self.facts.paid.append(("revoked", self.plain_reference(name)))
            return
        currency = draw.choice((prices, prices, *CURRENCIES))
        names = [month.name for month in MONTHS]
        credit = PrepaidCredit(
            reference=f"P-{draw.randrange(30)}",
            amount_micro=draw.randrange(1, 50) * PPM,
            currency=currency,
            last_month=draw.choice((None, *names)),
        )
        events = await self._send(GrantPrepaid(credit=credit))
        is_over = credit.last_month is not None and credit.last_month < self._month
        granted = currency == prices and credit.reference not in balances and not is_over
        assert any(isinstance(event, PrepaidGranted) for event in events) == granted, (
            *(self.tenant, self._month, events),
        )
        if granted:
            self.done["prepaid"] += 1
            paid = biller.Paid(
                *(credit.reference, credit.amount_micro, currency, self._month, credit.last_month)
            )
            self.facts.paid.append(("paid", paid))

    def plain_reference(self, reference: str) -> str:
        """The second biller's name of a credit: it numbers no invoices."""
        for statement in self.closed:
            for bill in statement.bills:
                if reference == f"carried:{bill.number}":
                    return f"carried:{statement.period}/{bill.currency}"
        return reference

    async def _use(self, number: int) -> None:
        """Time of this month or an earlier one, or what is given back of it."""
        draw = self.random
        if self._left and draw.random() < 0.4:
            key = draw.choice(sorted(self._left))
            whole = draw.random() < 0.5
            gpu_ms, tokens = (
                -left if whole else -draw.randrange(left + 1) for left in self._left[key]
            )
        else:
            month = MONTHS[max(0, number - draw.choice((0, 0, 0, 1, 2)))]
            version = draw.choice(sorted(self.books))
            key = (
                month.first_hour + draw.randrange(600),
                f"ftjob-{version}-{draw.choice(LANES)}-{draw.randrange(2)}",
                version,
                draw.choice(("train", "eval", "serve")),
                draw.choice(("cpu", "cuda")),
                draw.choice(("", "h1")),
                draw.random() < 0.3,
            )
            gpu_ms = draw.choice((HOUR_MS, draw.randrange(9 * HOUR_MS)))
            tokens = draw.choice((0, draw.randrange(10**8)))
        await self._record(key, gpu_ms, tokens)

    async def _record(self, key: tuple[Any, ...], gpu_ms: int, tokens: int) -> None:
        hour, job, version, role, device, accelerator, spot = key
        left = self._left.setdefault(key, [0, 0])
        left[0], left[1] = left[0] + gpu_ms, left[1] + tokens
        partition = self.random.randrange(2)
        is_credit = gpu_ms < 0 or tokens < 0
        row = LedgerRow(
            kind="credit" if is_credit else "usage",
            job_id=job,
            role=role,
            lane=job.split("-")[-2],
            price_version=version,
            hour_utc=hour,
            used_gpu_ms=0 if is_credit else gpu_ms,
            gpu_ms=gpu_ms,
            cause="lost" if is_credit else "",
            device=device,
            accelerator=accelerator,
            spot=spot,
            tokens=tokens,
            journal_partition=partition,
            journal_offset=self._ends[partition],
        )
        self._ends[partition] += 1
        self.rows.append(row)
        self.done["late"] += hour < MONTHS[len(self.closed)].first_hour
        await self._write(row)
        self.facts.written.append(
            biller.Written(
                job=job,
                lane=row.lane,
                version=version,
                role=role,
                device=device,
                accelerator=accelerator,
                spot=spot,
                hour=hour,
                gpu_ms=gpu_ms,
                tokens=tokens,
                bills=len(self.closed),
            )
        )

    async def _send(self, command: Message, key: str | None = None) -> tuple[Message, ...]:
        events: tuple[Message, ...] = self.decider.when(command, key)
        header = header_of(
            "account", key or self.tenant, self.decider.at, len(self.decider.journal)
        )
        for event in events:
            await self._project(header, event)
        return events

    def _count(self, what: str, events: tuple[Message, ...]) -> bool:
        """Whether it was accepted."""
        refused = _refused(events)
        self.done[f"{what} refused" if refused else what] += 1
        return not refused

    # --- random books, plans and terms

    def _books(self, seed: int) -> list[PriceBook]:
        return [self._book(f"{seed}-{number}", code) for number, code in enumerate(CURRENCIES)]

    def _book(self, version: str, currency: str) -> PriceBook:
        draw = self.random
        prices = {lane: draw.randrange(5 * PPM) for lane in LANES}
        rates = {
            (lane, role, device, spot): Rate(
                lane=lane,
                gpu_hour_micro=draw.randrange(1, 8 * PPM),
                role=role,
                device=device,
                spot=spot,
            )
            for lane, role, device, spot in (
                (
                    draw.choice(LANES),
                    draw.choice((None, "train", "eval")),
                    draw.choice((None, "cpu", "cuda", "h1")),
                    draw.choice((None, True, False)),
                )
                for _ in range(5)
            )
        }
        answers = AnswerPrices(
            prompt_micro_per_million=draw.randrange(5 * PPM),
            cached_micro_per_million=draw.randrange(5 * PPM),
            completion_micro_per_million=draw.randrange(5 * PPM),
        )
        return PriceBook(
            version=version,
            currency=currency,
            gpu_hour_micro=prices,
            token_micro_per_million=(tokens := draw.choice((0, draw.randrange(3, PPM)))),
            effective_from=f"2026-0{int(version[-1]) + 1}-01",
            rates=tuple(
                replace(rate, tiers=self._tiers(rate.gpu_hour_micro)) for rate in rates.values()
            ),
            token_tiers=self._tiers(tokens) if tokens else (),
            storage_micro_per_gb_month=draw.choice((0, draw.randrange(50_000))),
            answers=draw.choice((None, answers, answers)),
        )

    def _tiers(self, price: int) -> tuple[Tier, ...]:
        above = sorted(self.random.sample(range(1, 30), self.random.randrange(3)))
        prices = sorted({self.random.randrange(price) for _ in above}, reverse=True)
        return tuple(
            Tier(above=from_, unit_micro=micro) for from_, micro in zip(above, prices, strict=False)
        )

    def _some_plan(self) -> PlanTerms:
        soft = self.random.choice((0, self.random.randrange(30 * HOUR_MS), 10**12))
        return PlanTerms(
            lane="standard",
            limits=Limits(soft_gpu_ms=soft, hard_gpu_ms=10**13, concurrency=1),
            price_version=self.random.choice(sorted(self.books)),
        )

    def _some_terms(self) -> dict[str, Any]:
        draw = self.random
        book = self.books[(self._pending or self._plan).price_version]
        currency = draw.choice((book.currency, book.currency, *CURRENCIES))
        names = [None, None, *(month.name for month in MONTHS)]
        first, last = draw.choice(names), draw.choice(names)
        if first and last and last < first:
            first, last = last, first
        months = {"first_month": first, "last_month": last}
        discounts = [
            {
                "reference": f"K-{number}",
                "rate_ppm": draw.randrange(1, PPM // 2),
                "lane": draw.choice((None, *LANES)),
                **draw.choice(({}, months)),
            }
            for number in range(draw.randrange(3))
        ]
        hourly = {"gpu_hour_micro": draw.randrange(9 * PPM), "currency": currency}
        least = {"reference": "K-9", "amount_micro": draw.randrange(1, 10**8), "currency": currency}
        return {
            "taxes": [
                {"name": f"tax {rate}", "rate_ppm": rate}
                for rate in draw.sample((0, 70_000, 190_000, 333_333), draw.randrange(3))
            ],
            "discounts": discounts,
            "overage": draw.choice(
                (None, {"surcharge_ppm": draw.randrange(1, 2 * PPM)}, hourly, hourly)
            ),
            "commitment": draw.choice((None, least, {**least, **months})),
        }


def _stored(name: str, size: int) -> tuple[str, Message]:
    """The stream and the event of a new file or model."""
    if name.startswith("file"):
        terms = FileTerms(purpose="fine-tune", name=UNSEALED)
        content = FileContent(bytes=size, sha256="", blob="")
        return "dataset", FileRegistered(file_id=name, terms=terms, content=content)
    parts = tuple(
        BlobFile(name=f"part-{part}", blob="", sha256="", bytes=part)
        for part in (size // 3, size - size // 3)
    )
    version = replace(VERSION, model_id=name)
    return "model", VersionPublished(terms=version, files=parts, quarantined=False)


def _refused(events: tuple[Message, ...]) -> bool:
    return any(isinstance(event, Rejected) for event in events)


def expect_bills(months: FoulMonths) -> None:
    """Every bill of production is that of the second biller, to the millionth."""
    assert len(months.closed) >= len(MONTHS) - 5
    settled, left = months.facts.settled()
    for statement in months.closed:
        issued = {bill.currency: bill for bill in statement.bills}
        plain = {currency: _plain(bill) for currency, bill in issued.items()}
        empty = biller.Bill(0, 0, tuple(0 for _ in (statement.terms or BillingTerms()).taxes))
        worth = {currency: bill for currency, bill in plain.items() if bill != empty}
        where = months.tenant, statement.period
        assert worth == months.facts.bills(statement.period), where
        for currency, bill in issued.items():
            uses = tuple(
                (months.plain_reference(use.reference), use.amount_micro) for use in bill.prepaid
            )
            paid = biller.Settled(uses, bill.carried_micro)
            assert paid == settled.get((statement.period, currency), biller.Settled()), where
        _expect_budgets(months, statement)
    balances = months.decider.state.tenants[months.tenant].prepaid
    known = {months.plain_reference(name): entry.left_micro for name, entry in balances.items()}
    assert known == left, months.tenant
    notes = [(event.note.net_micro, event.note.taxes) for event in months.notes]
    assert [
        (net, tuple(tax.amount_micro for tax in taxes)) for net, taxes in notes
    ] == months.facts.credit_notes(), months.tenant


def _plain(bill: Bill) -> biller.Bill:
    return biller.Bill(
        amount_micro=bill.amount_micro,
        net_micro=bill.net_micro,
        taxes=tuple(tax.amount_micro for tax in bill.taxes),
        contract_micro=bill.contract_micro,
        volume_micro=bill.volume_micro,
        storage_micro=sum(charge.amount_micro for charge in bill.storage_charges),
        answers_micro=sum(charge.amount_micro for charge in bill.answer_charges),
    )


def _expect_budgets(months: FoulMonths, statement: Statement) -> None:
    """Check that budgets and caps of keys differ by at most half a millionth for each price."""
    for bill in statement.bills:
        counted = sum(
            PPM * cost.micro + cost.millionths
            for month, event in months.counted
            for cost in event.costs
            if month == statement.period and cost.currency == bill.currency
        )
        billed = sum(charge.amount_micro for charge in bill.answer_charges)
        assert 2 * abs(PPM * billed - counted) <= 3 * PPM * len(bill.answer_charges)
