"""`tunery invoice`: the invoice of a tenant for one month, and adjustments by operators."""

import asyncio
import csv
import os
import sys
from typing import TYPE_CHECKING

import click

from tunery.cli import _api, _options
from tunery.local.paths import DataDir

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.table import Table

    from tunery.billing.invoice import Invoice
    from tunery.billing.lines import Line
    from tunery.billing.periods import Period

SECONDS_MAX = 15
CSV_COLUMNS = (
    "tenant",
    "period",
    "job_id",
    "kind",
    "starts_at",
    "description",
    "lane",
    "price_version",
    "used_gpu_ms",
    "gpu_ms",
    "overage_gpu_ms",
    "gpu_hour_price",
    "amount",
    "currency",
)
EPILOG = """\
\b
Examples:
  tunery invoice show local --period 2026-11
  tunery invoice show local --period 2026-11 --json | jq .amount_micro
  tunery invoice show local --period 2026-11 --csv > november.csv
  tunery invoice adjust local --amount -5.00 --reason goodwill --reference T-17
"""
MICRO = 1_000_000


@click.group("invoice", cls=_options.Noun, epilog=EPILOG)
def command() -> None:
    """Show invoices; credit or charge a tenant."""


@command.command("show")
@click.argument("tenant")
@click.option("--period", required=True, help="Calendar month (UTC), like 2026-11.")
@click.option("--csv", "as_csv", is_flag=True, help="Print one CSV line per invoice line.")
@_options.as_json
@_options.data_dir
def show(tenant: str, period: str, as_csv: bool, as_json: bool, folders: DataDir) -> None:
    """Show the invoices of TENANT for one month, one for each currency.

    Reads billing's ledger in PostgreSQL: $TUNERY_POSTGRES_DSN, else the stack of --data-dir.
    A month is closed two hours after its end; usage that comes later is on the next invoice.
    """
    if as_csv and as_json:
        raise click.UsageError("--csv and --json exclude each other; choose one.")
    invoices = _read_invoices(tenant, period, folders)
    if as_json:
        import msgspec

        for invoice in invoices:
            click.echo(msgspec.json.encode(invoice))
    elif as_csv:
        _write_csv(invoices)
    else:
        from rich.console import Console

        for invoice in invoices:
            Console().print(table(invoice))


@command.command("adjust")
@click.argument("tenant")
@click.option("--amount", required=True, help="In the tenant's currency: -5.00 is a credit.")
@click.option("--reason", required=True, type=click.Choice(["goodwill", "correction", "contract"]))
@click.option(
    "--reference",
    required=True,
    help="For example a ticket number; a reference is used once per tenant.",
)
@_options.data_dir
@_options.as_json
def adjust(
    tenant: str, amount: str, reason: str, reference: str, folders: DataDir, as_json: bool
) -> None:
    """Credit TENANT, or charge it, on the invoice of this month (admin key)."""
    body = {"reference": reference, "amount_micro": _micro(amount), "reason": reason}
    with _api.connect(folders) as api:
        adjustment = api.adjust_invoice(tenant, body)
    fields = [
        ("tenant", adjustment["tenant"]),
        ("invoice", adjustment["period"]),
        ("amount", f"{_amount(adjustment['amount_micro'])} {adjustment['currency']}"),
        ("reason", f"{adjustment['reason']}, {adjustment['reference']}"),
    ]
    _api.show_one(adjustment, as_json, fields)


def _micro(amount: str) -> int:
    from decimal import Decimal, InvalidOperation

    try:
        micro = Decimal(amount) * MICRO
        if micro == int(micro):
            return int(micro)
    except (InvalidOperation, ValueError, OverflowError):
        pass
    raise click.BadParameter(
        f"{amount!r} is not an amount with at most six decimals, like -5.00", param_hint="--amount"
    )


def _read_invoices(tenant: str, name: str, folders: DataDir) -> "tuple[Invoice, ...]":
    import asyncpg

    from services.billing.adapters.ledger import NoTenant
    from services.billing.settings import BillingSettings
    from tunery.billing.invoice import Altered
    from tunery.billing.lines import PriceMissing
    from tunery.billing.periods import period

    try:
        month = period(name)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--period") from None
    dsn = postgres_dsn(folders)
    try:
        settings = BillingSettings()
        reading = _read(dsn, tenant, month, settings.seller)
        return asyncio.run(asyncio.wait_for(reading, SECONDS_MAX))
    except (PriceMissing, Altered) as error:
        raise click.ClickException(str(error)) from error
    except NoTenant:
        text = f"No tenant {tenant!r}. `tunery tenant list` shows them."
        raise click.ClickException(text) from None
    except asyncpg.UndefinedTableError:
        raise click.ClickException(
            "This database has no ledger yet; billing creates it at its first start (`tunery up`)."
        ) from None
    except (OSError, TimeoutError, asyncpg.PostgresError) as error:
        raise click.ClickException(
            f"PostgreSQL does not answer ({error or type(error).__name__}). "
            "Start the stack with `tunery up`, or set TUNERY_POSTGRES_DSN."
        ) from error


async def _read(dsn: str, tenant: str, month: "Period", seller: str) -> "tuple[Invoice, ...]":
    import asyncpg

    from services.billing.adapters.ledger import read_invoices

    connection = await asyncpg.connect(dsn, server_settings={"search_path": "billing"})
    try:
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            return await read_invoices(connection, tenant, month, seller)
    finally:
        await connection.close()


def postgres_dsn(folders: DataDir) -> str:
    """$TUNERY_POSTGRES_DSN, else that of the stack. Raises LocalError when there is neither."""
    from tunery.local import settings

    own = os.environ.get("TUNERY_POSTGRES_DSN")
    return own or settings.of_stack(folders, os.environ).postgres_dsn


def table(invoice: "Invoice") -> "Table":
    """The invoice as a table for 80 columns: two lines of text per item, sums at the foot."""
    from rich.table import Table

    number = f" {invoice.number}" if invoice.number else ""
    title = f"Invoice{number} · {invoice.period} · {invoice.tenant} · {invoice.status}"
    grid = Table(title=title, title_justify="left", show_footer=True, box=None, pad_edge=False)
    grid.add_column("job", footer="total", overflow="fold")
    over = _api.gpu_time(invoice.overage_gpu_ms, blank=True)
    for name, footer in (
        ("GPU time", _api.gpu_time(invoice.gpu_ms)),
        ("overage", over),
        ("GPU-hour", ""),
        (invoice.currency, _amount(invoice.total_micro)),
    ):
        if name != "overage" or over:
            grid.add_column(name, justify="right", no_wrap=True, footer=footer)
    for line in invoice.lines:
        style = "green" if line.kind == "credit" else None
        grid.add_row(*_cells(line, overage=bool(over)), style=style)
    blank = ("", "", "") if over else ("", "")
    for words, amount_micro in _below_lines(invoice):
        grid.add_row(words, *blank, _amount(amount_micro))
    return grid


def _below_lines(invoice: "Invoice") -> "Iterator[tuple[str, int]]":
    """What is on the invoice besides use: kind and words, and amount."""
    for adjustment in invoice.adjustments:
        yield f"adjustment: {adjustment.reason}, {adjustment.reference}", adjustment.amount_micro
    if invoice.rounding_micro:
        yield "rounding: to what can be paid", invoice.rounding_micro
    for tax in invoice.taxes:
        yield f"tax: {tax.rate.name} {tax.rate.rate_ppm / 10_000:g} %", tax.amount_micro


def _cells(line: "Line", *, overage: bool) -> tuple[str, ...]:
    hour = line.starts_at[:16].replace("T", " ")
    over = (_api.gpu_time(line.overage_gpu_ms, blank=True),) if overage else ()
    return (
        f"{line.job_id}\n  {line.description}, {line.lane}, {hour} UTC",
        _api.gpu_time(line.gpu_ms),
        *over,
        price(line.gpu_hour_micro),
        _amount(line.amount_micro),
    )


def price(micro: int) -> str:
    """Format millionths of the currency: `2.40`, with more places only when needed."""
    text = _amount(micro)
    return text.removesuffix("0000")


def _amount(micro: int) -> str:
    from tunery.billing.invoice import decimal_amount

    return f"{decimal_amount(micro):f}"


def _write_csv(invoices: "Sequence[Invoice]") -> None:
    writer = csv.DictWriter(sys.stdout, CSV_COLUMNS, extrasaction="ignore")
    writer.writeheader()
    for invoice in invoices:
        _write_lines(writer, invoice)


def _write_lines(writer: "csv.DictWriter[str]", invoice: "Invoice") -> None:
    for line in invoice.lines:
        writer.writerow(
            {
                "tenant": invoice.tenant,
                "period": invoice.period,
                "gpu_hour_price": _amount(line.gpu_hour_micro),
                "amount": _amount(line.amount_micro),
                **{name: getattr(line, name) for name in line.__struct_fields__},
            }
        )
    for words, amount_micro in _below_lines(invoice):
        kind, _, description = words.partition(": ")
        writer.writerow(
            {
                "tenant": invoice.tenant,
                "period": invoice.period,
                "kind": kind,
                "description": description,
                "amount": _amount(amount_micro),
                "currency": invoice.currency,
            }
        )
