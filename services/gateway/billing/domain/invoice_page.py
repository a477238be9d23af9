"""An invoice as a page to print. All text of tenants is escaped."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from html import escape
from typing import Final

from schemas.units import MICRO, Ms
from services.gateway.billing.domain.invoice_responses import InvoiceLineResponse, InvoiceResponse

HOUR_MS: Final = Decimal(3_600_000)
STYLE: Final = """\
body{font:14px/1.4 sans-serif;margin:2cm auto;max-width:18cm}
table{border-collapse:collapse;width:100%}
th,td{border-bottom:1px solid #ccc;padding:.3em;text-align:left;vertical-align:top}
td.n,th.n{text-align:right;white-space:nowrap}
tfoot td{font-weight:bold}
p{white-space:pre-line}
@page{size:A4;margin:1.5cm}"""


def invoice_page(invoice: InvoiceResponse, lines: Sequence[InvoiceLineResponse]) -> str:
    """The page: seller, buyer, dates, a row for each line, what is to be paid, notes below."""
    title = f"Invoice {invoice.number or f'{invoice.id} ({invoice.status})'}"
    return "\n".join(
        (
            "<!doctype html>",
            f'<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>',
            f"<style>{STYLE}</style></head><body>",
            f"<h1>{escape(title)}</h1>",
            *_paragraphs(invoice),
            "<table><thead><tr><th>what</th><th>when (UTC)</th>",
            '<th class="n">GPU-hours</th><th class="n">GPU-hour</th>',
            f'<th class="n">{escape(invoice.currency)}</th></tr></thead><tbody>',
            *map(_row, lines),
            "</tbody><tfoot>",
            *_totals(invoice),
            "</tfoot></table>",
            *_monthly(lines),
            *_notes(invoice),
            *_refunds(invoice),
            "</body></html>",
        )
    )


def _paragraphs(invoice: InvoiceResponse) -> Iterator[str]:
    for name, text in (
        ("from", invoice.seller),
        ("to", invoice.buyer),
        ("month", invoice.period),
        ("issued", _day(invoice.issued_at)),
        ("due", _day(invoice.due_at)),
    ):
        if text:
            yield f"<p><b>{name}</b> {escape(text)}</p>"


def _row(line: InvoiceLineResponse) -> str:
    what = line.description if line.job_id is None else f"{line.job_id}: {line.description}"
    hours = "" if line.gpu_hour_micro is None else f"{line.gpu_ms / HOUR_MS:.6f}"
    price = "" if line.gpu_hour_micro is None else _amount(line.gpu_hour_micro)
    if line.token_micro_per_million is not None:
        hours, price = (
            f"{line.tokens:,} tokens",
            f"{_amount(line.token_micro_per_million)} a million",
        )
    return _cells(
        (f"{line.kind}: {what}", _hour(line.hour_start)), (hours, price, _amount(line.amount_micro))
    )


def _notes(invoice: InvoiceResponse) -> Iterator[str]:
    for note in invoice.credit_notes:
        words = (
            f"Credit note {note.number}, {_day(note.issued_at)}: {note.reason}, {note.reference}"
        )
        yield f"<p>{escape(words)}: {_amount(note.total_micro)} {escape(invoice.currency)}</p>"


def _totals(invoice: InvoiceResponse) -> Iterator[str]:
    """The total, what was prepaid or is carried forward of it, and what is to be paid."""
    rows = [("total", invoice.total_micro)]
    rows += [(f"prepaid, {use.reference}", -use.amount_micro) for use in invoice.prepaid]
    if invoice.carried_micro:
        rows.append(("carried forward", invoice.carried_micro))
    rows.append(("to pay", invoice.due_micro))
    for name, micro in rows if len(rows) > 2 else rows[-1:]:
        cell = f'<td class="n">{_amount(micro)}</td>'
        yield f'<tr><td colspan="4">{escape(name)}</td>{cell}</tr>'


def _monthly(lines: Sequence[InvoiceLineResponse]) -> Iterator[str]:
    """Why what jobs cost and the invoice differ, where contract terms add lines."""
    if any(line.kind in ("volume", "discount", "overage", "commitment") for line in lines):
        yield (
            "<p>Jobs are listed at their list price. Volume tiers, discounts, overage and "
            "commitments apply to the whole month, so they are lines of their own and not in the "
            "cost of a job.</p>"
        )


def _refunds(invoice: InvoiceResponse) -> Iterator[str]:
    """Why lines are credited, where some are."""
    if not invoice.refund_rules:
        return
    yield "<h2>Credits on this invoice</h2>"
    yield "<table><thead><tr><th>cause</th><th>what happened</th><th>given back</th></tr></thead>"
    for rule in invoice.refund_rules:
        yield _cells((rule.cause, rule.meaning, rule.given_back), ())
    yield "</table>"


def _cells(texts: Iterable[str], numbers: Iterable[str]) -> str:
    cells = [f"<td>{escape(text)}</td>" for text in texts]
    cells += [f'<td class="n">{escape(number)}</td>' for number in numbers]
    return f"<tr>{''.join(cells)}</tr>"


def _amount(micro: int) -> str:
    return f"{Decimal(micro) / MICRO:.6f}"


def _day(at: Ms | None) -> str:
    return "" if at is None else f"{datetime.fromtimestamp(at // 1_000, UTC):%Y-%m-%d}"


def _hour(seconds: int | None) -> str:
    return "" if seconds is None else f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M}"
