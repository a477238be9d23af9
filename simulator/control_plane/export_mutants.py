"""Rules of the exporter, one broken at a time. Each must be caught by the account of its files."""

from collections.abc import Iterator
from typing import Any, Final
from uuid import uuid4

from msgspec.structs import replace

from schemas.account import InvoiceAdjusted
from schemas.envelope import Header
from schemas.pool import UsageCredited
from schemas.units import HOUR_MS
from services.exporter import host, journal_export
from services.exporter.domain import accounts, feed, focus, invoices
from services.exporter.domain.ranges import ExportRange, range_key
from simulator.event_core.mutants import Mutant
from tunery.billing.periods import Period, period_of
from tunery.runtime.journal.reader import START, Position

_Export = journal_export.JournalExport
_announcements = feed.usage_events
_use, _recover, _note = focus.charges_of_use, _Export._recover, invoices._charges_of_note
_bill, _account = invoices._charges_of_bill, invoices.charges_of_account


def _own_month(_: Any, __: Header, ___: str, hour_utc: int) -> Period:
    """Late use is on the invoice of the month in which it was, closed or not."""
    return period_of(hour_utc * HOUR_MS)


def _without_credits(header: Header, event: Any, *others: Any) -> Any:
    return () if isinstance(event, UsageCredited) else _use(header, event, *others)


def _billed_credits(header: Header, event: Any, *others: Any) -> Any:
    """Export credits with the sign of usage."""
    if isinstance(event, UsageCredited):
        event = replace(event, lost_gpu_ms=-event.lost_gpu_ms)
    return _use(header, event, *others)


async def _complete(export: Any, partition: int) -> Position:
    """A process that fixed a range is believed to have written its files."""
    name, first = export._stream.name, START
    while written := await export._stored(range_key(name, partition, first), ExportRange):
        first = written.end
    return first


async def _from_the_start(export: Any, partition: int) -> Position:
    """Ranges begin where a process has begun, not where the last one ended."""
    await _recover(export, partition)
    return START


def _by_process(_: Any, __: int, first: Position) -> str:
    """Give each process ranges of its own."""
    return f"exports/{uuid4()}/{first.offset}.json"


def _no_charges(*_: Any) -> Iterator[Any]:
    return iter(())


def _without_adjustments(header: Header, event: Any, provider: str) -> Any:
    return () if isinstance(event, InvoiceAdjusted) else _account(header, event, provider)


def _without_taxes(header: Header, context: Any, bill: Any) -> Iterator[Any]:
    return _bill(header, context, replace(bill, taxes=()))


def _without_rounding(header: Header, context: Any, bill: Any) -> Iterator[Any]:
    return _bill(header, context, replace(bill, net_micro=bill.amount_micro))


def _net(header: Header, note: Any, *others: Any) -> Iterator[Any]:
    """Credit notes give no taxes back."""
    return _note(header, replace(note, taxes=()), *others)


def _announced_twice(*arguments: Any) -> Iterator[Any]:
    for announcement in _announcements(*arguments):
        yield announcement
        later = replace(announcement.source, index=announcement.source.index + 1)
        yield announcement._replace(source=later)


def _wanted(*_: Any) -> bool:
    return True


EXPORT_MUTANTS: Final = (
    Mutant(
        "late use in a closed month",
        accounts.AccountFacts,
        "billed_month",
        _own_month,
        "export",
        seed=1675,
    ),
    Mutant("credits are not exported", host, "charges_of_use", _without_credits, "export", seed=5),
    Mutant(
        "credits are exported as use", host, "charges_of_use", _billed_credits, "export", seed=5
    ),
    Mutant("a range that was begun is complete", _Export, "_recover", _complete, "export", seed=71),
    Mutant("exports begin at zero", _Export, "_recover", _from_the_start, "export"),
    Mutant("two write one range", journal_export, "range_key", _by_process, "export"),
    Mutant(
        "adjustments are not exported", host, "charges_of_account", _without_adjustments, "export"
    ),
    Mutant(
        "taxes are not exported", invoices, "_charges_of_bill", _without_taxes, "export", seed=123
    ),
    Mutant("rounding is not exported", invoices, "_charges_of_bill", _without_rounding, "export"),
    Mutant("credit notes are not exported", invoices, "_charges_of_note", _no_charges, "export"),
    Mutant("credit notes without taxes", invoices, "_charges_of_note", _net, "export", seed=141),
    Mutant(
        "use is announced twice", host, "usage_events", _announced_twice, "announced use", seed=32
    ),
    Mutant(
        "use is announced to all", accounts.AccountFacts, "wants_usage", _wanted, "announced use"
    ),
)
