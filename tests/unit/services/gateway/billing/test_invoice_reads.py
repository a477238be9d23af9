"""Invoices from the read models are those of the whole ledger, however late rows come."""

from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec import to_builtins
from msgspec.structs import replace

from schemas.account import (
    InvoiceClosed,
    Limits,
    PeriodEnded,
    PlanTerms,
    PricesImported,
    TenantCreated,
)
from schemas.billing import Rate, Statement, Tier
from schemas.dataset import FileContent, FileDeleted, FileRegistered
from schemas.pool import UsageCredited, UsageSliced
from schemas.sealed import Sealed
from schemas.session import CommandAnswered, SessionTokens
from schemas.storage import FileTerms
from schemas.streams import PARTITIONS
from schemas.training import BlobFile
from schemas.units import HOUR_MS
from services.gateway.accounts.prices import ViewedPrices
from services.gateway.billing.invoice_reads import _ledger_row, find_tenant, read_invoices
from services.gateway.views.tables.jobs import USAGE
from services.gateway.web.deps import Deps
from services.gateway.web.domain.errors import ApiError
from tests.unit.services.gateway.billing.used import credited, lease, sliced
from tests.unit.services.gateway.view_rows import (
    Records,
    fold,
    folded,
    header,
    rows,
    views_over,
)
from tunery.billing.invoice import BilledMonth, Invoice, close_invoice, make_invoices
from tunery.billing.lines import LedgerRow, select_usage
from tunery.billing.periods import Period, cut_of, period, share_of
from tunery.plan.price import PRICES_DIR, load_price_books
from tunery.platform.settings import read_files

GB = 10**9
FILE = BlobFile(name="answer", blob="t/acme/sessions/1", sha256="ab" * 32, bytes=1)
MONTHS = [period(name) for name in ("2026-09", "2026-10", "2026-11")]
OURS = load_price_books(read_files(PRICES_DIR, ".json"))["2026-11"]
TIERS = (Tier(above=1, unit_micro=2_000_000), Tier(above=4, unit_micro=1_234_567))
BOOK = replace(OURS, rates=(Rate(lane="standard", gpu_hour_micro=2_400_000, tiers=TIERS),))
END = MONTHS[-1].end_ms
TENANT = TenantCreated(
    name=Sealed(key_id="k", nonce=b"n", ciphertext=b"c"),
    terms=PlanTerms(
        lane="standard",
        limits=Limits(soft_gpu_ms=5 * HOUR_MS, hard_gpu_ms=10**12, concurrency=1),
        price_version="2026-11",
    ),
)


def history(random: Random) -> tuple[Records, list[Statement]]:
    """Use and credits of three months in any order; two months are closed after some of it."""
    events: list[UsageSliced | UsageCredited] = []
    for number in range(60):
        hour = random.choice(MONTHS).first_hour + random.randrange(600)
        ref = lease("acme", f"ftjob-{random.randrange(5)}", number)
        events.append(sliced(ref, hour, random.randrange(1, HOUR_MS)))
        if random.random() < 0.3:
            events.append(credited(ref, hour, random.randrange(1, 1_000)))
    records = folded("pool", *events, key="default")
    ledger = [_ledger_row(row) for row in rows(records, USAGE)]
    closed: list[Statement] = []
    offset = 0
    for month in MONTHS[:2]:
        offset = random.randrange(offset, len(events))
        cut = (offset,) + (0,) * (PARTITIONS - 1)
        empty = Statement(
            period=month.name,
            cut=cut,
            incarnations=(0,) * PARTITIONS,
            currency="EUR",
            soft_gpu_ms=HOUR_MS,
            gpu_ms=0,
            amount_micro=0,
        )
        (bill,) = ledger_invoices(month, ledger, [*closed, empty], closing=True)
        closed.append(
            Statement(
                period=month.name,
                cut=cut,
                incarnations=(0,) * PARTITIONS,
                currency="EUR",
                soft_gpu_ms=HOUR_MS,
                gpu_ms=bill.gpu_ms,
                amount_micro=bill.amount_micro,
                bills=(close_invoice(bill),),
            )
        )
    return records, closed


def ledger_invoices(
    month: Period, ledger: list[LedgerRow], closed: list[Statement], *, closing: bool = False
) -> tuple[Invoice, ...]:
    """The invoice as a pure function of the whole ledger."""
    statement = None if closing else {entry.period: entry for entry in closed}.get(month.name)
    billed = BilledMonth(
        tenant="acme",
        month=month,
        soft_gpu_ms=HOUR_MS if closing else 5 * HOUR_MS,
        currency="EUR",
        ended=statement is not None,
        statement=statement,
    )
    return make_invoices(
        billed, select_usage(ledger, share_of(month, closed)), {BOOK.version: BOOK}
    )


def deps_over(records: Records) -> Deps:
    now = (MONTHS[-1].first_hour + 700) * HOUR_MS
    clock = SimpleNamespace(now_ms=lambda: now)
    views = views_over(records)
    deps: Any = SimpleNamespace(views=views, prices=ViewedPrices(views), clock=clock)
    return cast("Deps", deps)


def with_account(records: Records, closed: list[Statement]) -> Records:
    ends = [
        PeriodEnded(
            period=entry.period,
            soft_gpu_ms=entry.soft_gpu_ms,
            before=None,
            price_version=BOOK.version,
        )
        for entry in closed
    ]
    facts = [InvoiceClosed(statement=entry) for entry in closed]
    imported = PricesImported(book=BOOK, sha256="a" * 64)
    records = folded("account", TENANT, imported, *ends, *facts, records=records)
    records["tenants"]["acme",]["created_at"] = MONTHS[0].first_hour * HOUR_MS
    return records


@pytest.mark.parametrize("seed", range(30))
async def test_each_months_invoice_is_that_of_the_whole_ledger(seed: int) -> None:
    records, closed = history(Random(seed))
    ledger = [_ledger_row(row) for row in rows(records, USAGE)]
    deps = deps_over(with_account(records, closed))
    total = 0
    for month in MONTHS:
        invoices = await read_invoices(deps, await find_tenant(deps, "acme"), month)
        assert invoices == ledger_invoices(month, ledger, closed)
        total += sum(invoice.gpu_ms for invoice in invoices)
    assert total == sum(row.gpu_ms for row in ledger)


async def test_money_b3_storage_is_on_the_draft_and_stays_after_a_file_is_gone() -> None:
    records, closed = history(Random(1))
    until = END - 30 * HOUR_MS
    for bytes_, since, gone in ((3 * GB, END - 40 * HOUR_MS, None), (GB, 0, until)):
        name = f"file-{bytes_}"
        content = FileContent(bytes=bytes_, sha256="", blob="")
        terms = FileTerms(purpose="fine-tune", name=TENANT.name)
        registered = FileRegistered(file_id=name, terms=terms, content=content)
        folded("dataset", registered, records=records)
        records["stored"]["acme", name]["since"] = since
        if gone is not None:
            deleted = FileDeleted(file_id=name, blob="", report_blob=None)
            folded("dataset", deleted, records=records)
            records["stored"]["acme", name]["until"] = gone
    priced = replace(BOOK, storage_micro_per_gb_month=720_000)
    records = with_account(records, closed)
    records["prices"][BOOK.version,]["book"] = to_builtins(priced)
    deps = deps_over(records)
    (draft,) = await read_invoices(deps, await find_tenant(deps, "acme"), MONTHS[-1])
    hours_before = (until - MONTHS[-1].first_hour * HOUR_MS) // HOUR_MS
    now_before_end = 20  # `deps_over` says that it is the 700th hour of 720
    (charge,) = draft.storage
    assert charge.byte_hours == GB * (hours_before + 3 * (40 - now_before_end))
    assert charge.amount_micro == 1_000 * (hours_before + 3 * 20)


async def test_an_invoice_that_is_not_what_was_closed_is_an_error() -> None:
    records, closed = history(Random(1))
    deps = deps_over(with_account(records, closed))
    cut = cut_of(closed[0]).offsets[0]
    row = next(
        record
        for record in records["usage"].values()
        if record["journal_offset"] < cut and record["hour_utc"] < MONTHS[0].end_hour
    )
    row["billable_gpu_ms"] += 1
    with pytest.raises(ApiError) as refused:
        await read_invoices(deps, await find_tenant(deps, "acme"), MONTHS[0])
    assert refused.value.code == "invoice_not_reproduced"


async def test_tokens_of_sessions_are_on_the_invoice_of_the_month_in_which_they_were_answered() -> (
    None
):
    """A closed month keeps its own: what is answered after its end is on the next one."""
    records, closed = history(Random(1))
    hours = (MONTHS[1].end_hour - 1, MONTHS[1].end_hour, MONTHS[1].end_hour)
    for number, hour in enumerate(hours):
        answered = CommandAnswered(
            name=str(number), answer=FILE, trained=10, prefilled=5, price_version=BOOK.version
        )
        fold(records, header("session", at=hour * HOUR_MS, seq=number), answered)
    deps = deps_over(with_account(records, closed))
    tenant = await find_tenant(deps, "acme")
    for month, count in zip(MONTHS, (0, 1, 2), strict=True):
        (invoice,) = await read_invoices(deps, tenant, month)
        expected = SessionTokens(train_tokens=10 * count, prefill_tokens=5 * count, sample_tokens=0)
        assert [use.tokens for use in invoice.sessions] == [expected] * bool(count)
        assert close_invoice(invoice) == close_invoice(replace(invoice, sessions=()))


async def test_there_is_nothing_before_the_tenant_or_without_one() -> None:
    records, closed = history(Random(1))
    deps = deps_over(with_account(records, closed))
    assert await read_invoices(deps, await find_tenant(deps, "acme"), period("2026-08")) == ()
    assert await read_invoices(deps, await find_tenant(deps, "nobody"), MONTHS[0]) == ()


async def test_a_tenant_without_its_price_book_has_no_invoice_in_a_guessed_currency() -> None:
    records, closed = history(Random(1))
    records = with_account(records, closed)
    records["prices"].clear()
    with pytest.raises(ApiError, match="no price book '2026-11'") as refused:
        await find_tenant(deps_over(records), "acme")
    assert refused.value.code == "invoice_not_reproduced"


async def test_a_list_of_invoices_reads_what_they_share_once() -> None:
    records, closed = history(Random(1))
    deps = deps_over(with_account(records, closed))
    tenant = await find_tenant(deps, "acme")
    for table in ("tenants", "months", "billing_terms"):
        records.pop(table, None)
    for month in MONTHS:
        assert await read_invoices(deps, tenant, month)
