"""Price books and bills of a run: as production makes them, and as they must be.

What must be is priced by the admission of each job, and rounded with fractions.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from hashlib import sha256
from typing import Any, Final, TypeAlias

import msgspec

from schemas.account import ImportPrices, PricesImported
from schemas.billing import AnswerPrices, PriceBook, Rate
from schemas.units import HOUR_MS, PPM, GpuMs, Micro
from services.billing.adapters.prices import read_books
from simulator.control_plane.quota_books import Charged, month
from simulator.control_plane.usage_books import LedgerLine
from tunery.billing.invoice import BilledMonth, Invoice, is_billable, make_invoices
from tunery.billing.lines import LedgerRow, select_usage
from tunery.billing.periods import BillShare, period
from tunery.runtime.journal.reader import Accepted

BillKey: TypeAlias = tuple[str, str, str]  # tenant, month, currency
own_books = cache(read_books)  # of our files, which are on the log from the start
LATER_BOOKS: Final = (
    PriceBook(
        version="2023-12",
        currency="EUR",
        gpu_hour_micro={"premium": 4_100_000, "standard": 2_900_001, "free": 350_000},
        token_micro_per_million=0,
        effective_from="2023-12-01",
        rates=(
            Rate(lane="standard", gpu_hour_micro=1_200_007, role="eval"),
            Rate(lane="standard", gpu_hour_micro=7_000_003, device="h1"),
            Rate(lane="standard", gpu_hour_micro=1_500_001, device="h1", spot=True),
            Rate(lane="premium", gpu_hour_micro=3_000_007, spot=True),
            Rate(lane="free", gpu_hour_micro=0, device="cpu", spot=True),
        ),
        answers=AnswerPrices(
            prompt_micro_per_million=200_003,
            cached_micro_per_million=50_001,
            completion_micro_per_million=600_007,
        ),
    ),
    PriceBook(
        version="2023-12-usd",
        currency="USD",
        gpu_hour_micro={"premium": 3_700_000, "standard": 2_700_000, "free": 0},
        token_micro_per_million=1_500_001,
        effective_from="2023-12-01",
        answers=AnswerPrices(
            prompt_micro_per_million=170_001,
            cached_micro_per_million=0,
            completion_micro_per_million=510_003,
        ),
    ),
)


def import_of(book: PriceBook) -> ImportPrices:
    """The command that an operator sends to every partition."""
    return ImportPrices(book=book, sha256=sha256(msgspec.json.encode(book)).hexdigest())


def books_on_log(decisions: Iterable[Accepted]) -> Mapping[str, PriceBook]:
    """Our price books, and those that these decisions of `account` have imported, by version."""
    imported = {
        event.book.version: event.book
        for decision in decisions
        for event in decision.events
        if isinstance(event, PricesImported)
    }
    return {**own_books(), **imported}


@dataclass(frozen=True)
class SimBill:
    """One invoice of production code.

    jobs: the sum of the lines of each job.
    has_rates: a line has another price than that of its lane.
    """

    key: BillKey
    gpu_ms: GpuMs
    amount_micro: Micro
    jobs: Mapping[str, Micro]
    has_rates: bool


def make_bills(
    ledger: Sequence[dict[str, Any]], books: Mapping[str, PriceBook]
) -> tuple[SimBill, ...]:
    """All invoices of a ledger that something is on, by the code of production."""
    rows: dict[str, list[LedgerRow]] = defaultdict(list)
    for row in ledger:
        rows[row["tenant"]].append(msgspec.convert(row, LedgerRow))
    bills: list[SimBill] = []
    for tenant, mine in sorted(rows.items()):
        for name in sorted({month(row.hour_utc) for row in mine}):
            billed = BilledMonth(
                tenant=tenant, month=period(name), soft_gpu_ms=None, currency="EUR"
            )
            usage = select_usage(mine, BillShare(month=billed.month))
            invoices = make_invoices(billed, usage, books)
            bills += [_bill(invoice, books) for invoice in invoices if is_billable(invoice)]
    return tuple(bills)


def _bill(invoice: Invoice, books: Mapping[str, PriceBook]) -> SimBill:
    jobs = Counter[str]()
    for line in invoice.lines:
        jobs[line.job_id] += line.amount_micro
    key = (invoice.tenant, invoice.period, invoice.currency)
    has_rates = any(
        line.gpu_hour_micro != books[line.price_version].gpu_hour_micro[line.lane]
        for line in invoice.lines
        if line.meter == "time"
    )
    return SimBill(key, invoice.gpu_ms, invoice.amount_micro, jobs, has_rates)


def true_bills(
    lines: Iterable[LedgerLine], charges: Mapping[str, Charged]
) -> dict[BillKey, tuple[GpuMs, Micro]]:
    """Time and money by tenant, month and currency; a job's sum to a month's end is rounded once.

    charges: charges of each job, by the price that it was admitted at.
    """
    used: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    prices: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    tokens: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for line in lines:
        used[line.tenant, line.job_id][month(line.hour_utc)] += line.gpu_ms
        hourly = charges[line.job_id].hourly(line.role, line.accelerator, spot=line.spot)
        prices[line.tenant, line.job_id][month(line.hour_utc)] += line.gpu_ms * hourly
        tokens[line.tenant, line.job_id][month(line.hour_utc)] += line.tokens
    totals: dict[BillKey, tuple[GpuMs, Micro]] = defaultdict(lambda: (0, 0))
    for (tenant, job_id), months in used.items():
        so_far = trained = paid = 0
        charge = charges[job_id]
        for name, gpu_ms in sorted(months.items()):
            so_far += prices[tenant, job_id][name]
            trained += tokens[tenant, job_id][name] * charge.token_micro_per_million
            due = round(Fraction(so_far, HOUR_MS)) + round(Fraction(trained, PPM)) - paid
            time, money = totals[tenant, name, charge.currency]
            totals[tenant, name, charge.currency] = time + gpu_ms, money + due
            paid += due
    return dict(totals)


def compare_bills(
    bills: Sequence[SimBill],
    lines: Counter[LedgerLine],
    charges: Mapping[str, Charged],
    books: Mapping[str, PriceBook],
) -> list[str]:
    """Return violations of the bills.

    Checked are the price of each line, the time and amount of each bill, and that the lines of each
    job sum to its cost.
    """
    violations = [why for line in lines for why in _wrong_price(line, charges[line.job_id], books)]
    issued = {bill.key: (bill.gpu_ms, bill.amount_micro) for bill in bills}
    if len(issued) != len(bills):
        violations.append(f"invoice: two bills of one month and currency: {bills}")
    truth = true_bills(lines.elements(), charges)
    if issued != truth:
        violations.append(f"invoice: bills are {issued}, their slices are {truth}")
    costs = Counter[str]()
    for bill in bills:
        costs.update(bill.jobs)
    for job_id in sorted({line.job_id for line in lines}):
        if costs[job_id] != charges[job_id].cost():
            cost = charges[job_id].cost()
            violations.append(f"invoice: lines of {job_id} sum to {costs[job_id]}, it costs {cost}")
    return violations


def _wrong_price(
    line: LedgerLine, charge: Charged, books: Mapping[str, PriceBook]
) -> Iterable[str]:
    """A line is priced by its job's admission, and that by the book of its version."""
    if (line.price_version, line.lane) != (charge.price_version, charge.lane):
        yield f"price: {line} is of a job that was admitted at {charge}"
    book = books[charge.price_version]
    if (charge.gpu_hour_micro, charge.currency) != (
        book.gpu_hour_micro[charge.lane],
        book.currency,
    ):
        yield f"price: {line.job_id} was admitted at {charge}, its book is {book}"
