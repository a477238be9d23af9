"""`tunery invoice`: the invoices of a tenant, and adjustments by operators."""

import csv
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import click

from schemas.session import TOKEN_KINDS
from schemas.units import AMOUNT_MICRO_MAX, MICRO
from tunery.billing.cells import safe_cell
from tunery.billing.currency import in_units
from tunery.cli import _api, _options
from tunery.cli._billing_terms import billing_fields

if TYPE_CHECKING:
    from rich.table import Table

    from tunery.client import Api

CSV_COLUMNS = (
    "tenant",
    "period",
    "job_id",
    "kind",
    "starts_at",
    "description",
    "lane",
    "price_version",
    "role",
    "device",
    "accelerator",
    "spot",
    "used_gpu_ms",
    "gpu_ms",
    "overage_gpu_ms",
    "gpu_hour_price",
    "tokens",
    "million_tokens_price",
    *TOKEN_KINDS,
    "amount",
    "currency",
)
EPILOG = """\
\b
Examples:
  tunery invoice list
  tunery invoice show                              your own, this month so far
  tunery invoice show acme --period 2026-11        a tenant's, for operators
  tunery invoice show --period 2026-11 --json | jq .total_micro
  tunery invoice show --period 2026-11 --csv > november.csv
  tunery invoice show --period 2026-11 --pdf november.pdf
  tunery invoice lines --period 2026-11 --json
  tunery invoice sums --by key,metadata[team]
  tunery invoice terms --month 2026-12
  tunery invoice prepaid
  tunery invoice adjust acme --amount -5.00 --reason goodwill --reference T-17
"""
ASKED_FROM_MICRO = 100 * MICRO  # of an adjustment; `1e3` is a thousand
F = TypeVar("F", bound=Callable[..., Any])
Invoice: TypeAlias = Mapping[str, Any]
Line: TypeAlias = Mapping[str, Any]


def _this_month() -> str:
    """The calendar month in UTC, like 2026-11."""
    return f"{datetime.now(UTC):%Y-%m}"


def _period(function: F) -> F:
    return click.option(
        "--period",
        default=_this_month,
        help="Calendar month (UTC), like 2026-11. [this month]",
    )(function)


@click.group("invoice", cls=_options.ExampleGroup, epilog=EPILOG)
def command() -> None:
    """Show invoices; credit or charge a tenant."""


@command.command("list")
@click.argument("tenant", required=False)
@_api.listed(
    {
        "invoice": "id",
        "number": "number",
        "status": "status",
        "due": lambda invoice: _api.moment(invoice["due_at"])[:10],
        "GPU time": lambda invoice: _api.gpu_time(invoice["gpu_ms"]),
        "to pay": lambda invoice: _amount(invoice["due_micro"]),
        "": "currency",
    }
)
def list_invoices(api: "Api", tenant: str | None) -> Any:
    """List the invoices of TENANT, newest first. [the key's own tenant]"""
    return api.invoices(tenant)


@command.command("show")
@click.argument("tenant", required=False)
@_period
@click.option("--csv", "as_csv", is_flag=True, help="Print one CSV line per invoice line.")
@click.option("--pdf", type=click.Path(dir_okay=False, path_type=Path), help="Write it as PDF.")
@_api.asking
def show(
    api: "Api",
    tenant: str | None,
    period: str,
    as_csv: bool,
    pdf: Path | None,
    as_json: bool,
) -> None:
    """Show the invoices of TENANT for one month, one for each currency. [the key's own tenant]

    A month is closed two hours after its end; usage that comes later is on the next invoice.
    """
    if as_csv + as_json + (pdf is not None) > 1:
        raise click.UsageError("--csv, --pdf and --json exclude each other; choose one.")
    if pdf is not None:
        _write_pdf(api, tenant, _invoices_of(api, tenant, period), pdf)
        return
    invoices = [
        {**invoice, "lines": list(api.invoice_lines(invoice["id"], tenant))}
        for invoice in _invoices_of(api, tenant, period)
    ]
    if as_json:
        for invoice in invoices:
            click.echo(json.dumps(invoice))
    elif as_csv:
        _write_csv(tenant, invoices)
    else:
        screen = _api.screen()
        for invoice in invoices:
            screen.print(table(tenant, invoice))
            for name, micro in _payments(invoice):
                screen.print(f"{name}: {_amount(micro)} {invoice['currency']}", markup=False)
            for rule in invoice["refund_rules"]:
                words = f"{rule['cause']}: {rule['meaning']}; given back: {rule['given_back']}"
                screen.print(words, markup=False, highlight=False)


@command.command("lines")
@click.argument("tenant", required=False)
@_period
@_api.listed(
    {
        "line": "id",
        "kind": "kind",
        "job": "job_id",
        "hour": lambda line: "" if line["hour_start"] is None else _api.hour(line["hour_start"]),
        "GPU time": lambda line: _api.gpu_time(line["gpu_ms"], blank=True),
        "amount": lambda line: _amount(line["amount_micro"]),
        "": "currency",
    }
)
def lines(api: "Api", tenant: str | None, period: str) -> Any:
    """List every line of the invoices of TENANT for one month; they add up to the total.
    [the key's own tenant]
    """
    return (
        line
        for invoice in _invoices_of(api, tenant, period)
        for line in api.invoice_lines(invoice["id"], tenant)
    )


@command.command("sums")
@click.argument("tenant", required=False)
@_period
@click.option(
    "--by",
    default="job",
    show_default=True,
    help="Any of job, key, model, suffix, metadata[NAME], with commas.",
)
@_api.asking
def sums(api: "Api", tenant: str | None, period: str, by: str, as_json: bool) -> None:
    """Sum the invoices of TENANT for one month by job, key, model, suffix or metadata.

    The last sum is what belongs to no job; the sums add up to the total. [the key's own tenant]
    """
    names = [name.strip() for name in by.split(",") if name.strip()]
    _api.show_rows(
        (
            entry
            for invoice in _invoices_of(api, tenant, period)
            for entry in api.invoice_sums(invoice["id"], by, tenant)["data"]
        ),
        as_json,
        (*names, "GPU time", "amount", ""),
        lambda entry: (
            *_group_cells(entry, names),
            _api.gpu_time(entry["gpu_ms"], blank=not entry["of_jobs"]),
            _amount(entry["amount_micro"]),
            entry["currency"],
        ),
    )


def _group_cells(entry: Mapping[str, Any], names: Sequence[str]) -> Iterator[str]:
    """Yield a sum's value for each column; the first is `no job` for charges without a job."""
    values = {
        "job": entry["job_id"],
        "key": entry["api_key_id"],
        "model": entry["model"],
        "suffix": entry["suffix"],
        **{f"metadata[{name}]": value for name, value in (entry["metadata"] or {}).items()},
    }
    for number, name in enumerate(names):
        yield values.get(name) or ("" if entry["of_jobs"] or number else "no job")


@command.command("terms")
@click.argument("tenant", required=False)
@click.option("--month", metavar="YYYY-MM", help="Terms of this month. [this month]")
@_api.shown(billing_fields)
def terms(api: "Api", tenant: str | None, month: str | None) -> Any:
    """Show what the invoices of TENANT say, and its contract's terms. [the key's own tenant]"""
    return api.billing_terms(tenant, month=month)


def _payments(invoice: Invoice) -> list[tuple[str, int]]:
    """Return the prepaid and carried amounts of an invoice and the rest due; [] without them."""
    rows = [(f"prepaid, {use['reference']}", -use["amount_micro"]) for use in invoice["prepaid"]]
    if invoice["carried_micro"]:
        rows.append(("carried forward", invoice["carried_micro"]))
    return [*rows, ("to pay", invoice["due_micro"])] if rows else []


@command.command("prepaid")
@click.argument("tenant", required=False)
@_api.listed(
    {
        "reference": "id",
        "amount": lambda credit: _amount(credit["amount_micro"]),
        "used": lambda credit: _amount(credit["used_micro"]),
        "expired": lambda credit: _amount(credit["expired_micro"]),
        "left": lambda credit: _amount(credit["left_micro"]),
        "": "currency",
        "last month": "last_month",
    }
)
def list_prepaid(api: "Api", tenant: str | None) -> Any:
    """List the prepaid credits of TENANT, newest first. [the key's own tenant]"""
    return api.prepaid(tenant)


def _invoices_of(api: "Api", tenant: str | None, period: str) -> list[dict[str, Any]]:
    invoices = list(api.invoices(tenant, period))
    if not invoices:
        raise click.ClickException(f"{_named(tenant)} has no invoice of {period}.")
    return invoices


def _named(tenant: str | None) -> str:
    return f"Tenant {tenant}" if tenant else "The key's tenant"


@command.command("adjust")
@click.argument("tenant")
@click.option("--amount", required=True, help="In the tenant's currency: -5.00 is a credit.")
@click.option(
    "--reason",
    required=True,
    type=click.Choice(["goodwill", "correction", "contract"]),
    help="Why; it is on the invoice.",
)
@click.option(
    "--reference",
    required=True,
    help="For example a ticket number; a reference is used once per tenant.",
)
@click.option("--yes", is_flag=True, help="Do not ask, whatever the amount.")
@_api.asking
def adjust(
    api: "Api",
    tenant: str,
    amount: str,
    reason: str,
    reference: str,
    yes: bool,
    as_json: bool,
) -> None:
    """Credit TENANT, or charge it, on the invoice of this month (admin key).

    An amount of 100 or more is asked about.
    """
    micro = micro_of(amount)
    body = {"reference": reference, "amount_micro": micro, "reason": reason}
    if abs(micro) >= ASKED_FROM_MICRO and not yes:
        verb = "Credit" if micro < 0 else "Charge"
        question = f"{verb} {tenant} {_amount(abs(micro))} in its currency ({reason}, {reference})?"
        click.confirm(question, abort=True, err=True)
    adjustment = api.adjust_invoice(tenant, body)
    fields = [
        ("tenant", adjustment["tenant"]),
        ("invoice", adjustment["period"]),
        ("amount", f"{_amount(adjustment['amount_micro'])} {adjustment['currency']}"),
        ("reason", f"{adjustment['reason']}, {adjustment['reference']}"),
    ]
    _api.show_one(adjustment, as_json, fields)


def micro_of(amount: str) -> int:
    """An amount as typed, in millionths. Raises BadParameter for more than six decimals."""
    from decimal import InvalidOperation

    try:
        micro = Decimal(amount) * MICRO
        if abs(micro) <= AMOUNT_MICRO_MAX and micro == int(micro):
            return int(micro)
    except (InvalidOperation, ValueError, OverflowError):
        pass
    raise click.BadParameter(
        f"{amount!r} is not an amount of at most {AMOUNT_MICRO_MAX // MICRO:,} with at most six "
        "decimals, like -5.00",
        param_hint="--amount",
    )


def table(tenant: str | None, invoice: Invoice) -> "Table":
    """The invoice as a table for 80 columns: two lines of text per item, sums at the foot."""
    from rich.table import Table
    from rich.text import Text

    number = f" {invoice['number']}" if invoice["number"] else ""
    parts = (f"Invoice{number}", invoice["period"], tenant, invoice["status"])
    title = Text(" · ".join(part for part in parts if part))
    grid = Table(title=title, title_justify="left", show_footer=True, box=None, pad_edge=False)
    grid.add_column("job", footer="total", overflow="fold")
    over = _api.gpu_time(invoice["overage_gpu_ms"], blank=True)
    for name, footer in (
        ("GPU time", _api.gpu_time(invoice["gpu_ms"])),
        ("overage", over),
        ("GPU-hour", ""),
        (invoice["currency"], _amount(invoice["total_micro"])),
    ):
        if name != "overage" or over:
            grid.add_column(name, justify="right", no_wrap=True, footer=footer)
    for line in invoice["lines"]:
        style = "green" if line["kind"] == "credit" else None
        grid.add_row(*map(Text, _cells(line, overage=bool(over))), style=style)
    return grid


def _cells(line: Line, *, overage: bool) -> Iterator[str]:
    """The cells of one line; what is no use of a job has only words and an amount."""
    if line["job_id"] is None:
        yield f"{line['kind']}: {line['description']}"
    elif line["hour_start"] is None:  # of its whole month
        yield f"{line['job_id']}\n  {line['description']}"
    else:
        hour = _api.hour(line["hour_start"])
        yield f"{line['job_id']}\n  {line['description']}, {line['lane']}, {hour}"
    per_million, hourly = line["token_micro_per_million"], line["gpu_hour_micro"]
    is_of_tokens = per_million is not None
    yield (
        f"{line['tokens']:,} tokens"
        if is_of_tokens
        else _api.gpu_time(line["gpu_ms"], blank=line["hour_start"] is None)
    )
    if overage:
        yield _api.gpu_time(line["overage_gpu_ms"], blank=True)
    if is_of_tokens:
        yield f"{in_units(per_million)} a million"
    else:
        yield "" if hourly is None else in_units(hourly)
    yield _amount(line["amount_micro"])


def _amount(micro: int) -> str:
    return f"{Decimal(micro) / MICRO:.6f}"


def _write_pdf(api: "Api", tenant: str | None, invoices: Sequence[Invoice], target: Path) -> None:
    """One file; with the currency in its name where there are several invoices."""
    for invoice in invoices:
        several = len(invoices) > 1
        path = target.with_stem(f"{target.stem}-{invoice['currency']}") if several else target
        try:
            path.write_bytes(api.invoice_pdf(invoice["id"], tenant))
        except OSError as error:
            raise click.ClickException(f"{path} cannot be written: {error.strerror}") from error
        click.echo(f"{path}")


def _write_csv(tenant: str | None, invoices: Iterable[Invoice]) -> None:
    writer = csv.DictWriter(sys.stdout, CSV_COLUMNS, extrasaction="ignore")
    writer.writeheader()
    for invoice in invoices:
        for line in invoice["lines"]:
            hour, hourly = line["hour_start"], line["gpu_hour_micro"]
            per_million = line["token_micro_per_million"]
            cells = {
                **line,
                "tenant": tenant or "",
                "period": invoice["period"],
                "starts_at": "" if hour is None else _api.hour(hour),
                "gpu_hour_price": "" if hourly is None else _amount(hourly),
                "million_tokens_price": "" if per_million is None else _amount(per_million),
                "amount": _amount(line["amount_micro"]),
            }
            writer.writerow({name: safe_cell(value) for name, value in cells.items()})
