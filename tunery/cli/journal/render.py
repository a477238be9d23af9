"""Prints journal records in a terminal."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

import click
import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from schemas.units import Ms
from tunery.cli import _api
from tunery.runtime.tools.archiving import ArchiveReport
from tunery.runtime.tools.inspection import PartitionReport, RecordReport, Verdict

COLOURS: Final[dict[Verdict, str]] = {
    "accepted": "green",
    "claim": "blue",
    "void": "yellow",
    "divergent": "red",
    "unreadable": "red",
    "unreached": "red",
    "readable": "green",
    "refused": "yellow",
}
HEAD_SHOWN: Final = 16


def print_line(record: RecordReport) -> None:
    """Print a record as one line; below it the reason and the fix when it does not count."""
    content: Any = record.content if isinstance(record.content, dict) else {}
    names = ", ".join(_name(event) for event in content.get("events", ()))
    text = names or record.why or ("no events" if record.content is not None else "")
    _print(
        f"{_moment(record.timestamp)}  {record.partition}:{record.offset:<7} "
        f"[{COLOURS[record.verdict]}]{record.verdict:<10}[/]  "
        f"{escape(record.key or '-')}  {escape(text)}"
    )
    if names and record.why:
        _print(f"    {escape(record.why)}")
    if record.fix:
        _print(f"    fix: {escape(record.fix)}")


def print_record(record: RecordReport) -> None:
    """Print everything about a record."""
    _api.show_one(
        {},
        False,
        (
            ("position", f"{record.stream}/{record.partition} at offset {record.offset}"),
            ("written", _moment(record.timestamp)),
            ("verdict", record.verdict),
            ("why", record.why),
            ("fix", record.fix),
            ("key", record.key),
            ("bytes", record.bytes),
        ),
    )
    if record.content is not None:
        text = msgspec.json.format(msgspec.json.encode(record.content), indent=2).decode()
        _print(escape(text))


def print_archived(reports: Sequence[ArchiveReport], *, dry_run: bool) -> None:
    """Print a row per partition that is not empty, and what it comes to."""
    grid = Table("partition", "archived", "in Kafka", "segments", "limit")
    for each in reports:
        if each.end:
            partition, kept = f"{each.stream}/{each.partition}", each.end - each.kept
            cells = (each.records, kept, each.segments)
            grid.add_row(partition, *map(str, cells), each.why)
    Console(width=None if _api.interactive() else _api.PIPE_WIDTH).print(grid, highlight=False)
    records = sum(each.records for each in reports)
    size = sum(each.bytes for each in reports)
    click.echo(
        f"{records} records would be archived"
        if dry_run
        else f"{records} records are archived, {size} bytes in object storage"
    )


def print_table(tallies: Sequence[PartitionReport], *, err: bool) -> None:
    """Print a row per partition that is not empty, and below them the bad records."""
    grid = Table("partition", "records", "accepted", "void", "claims", "next command", "head")
    for tally in tallies:
        if tally.records:
            counts = (tally.records, tally.accepted, tally.void, tally.claims, tally.cause + 1)
            partition = f"{tally.stream}/{tally.partition}"
            grid.add_row(partition, *map(str, counts), tally.head[:HEAD_SHOWN])
    console = Console(stderr=err, width=None if _api.interactive() else _api.PIPE_WIDTH)
    console.print(grid if grid.row_count else "No records.", highlight=False)
    for bad in (tally.bad for tally in tallies if tally.bad is not None):
        where = f"{bad.stream}/{bad.partition} at offset {bad.offset}"
        console.print(f"[red]{where}: {bad.verdict}[/]: {escape(bad.why)}", highlight=False)
        console.print(f"  fix: {escape(bad.fix)}", highlight=False)


def _name(event: dict[str, Any]) -> str:
    """`Rejected.v1 (hard_limit_exceeded)`, `JobEnded.v1`."""
    code = event.get("code")
    return f"{event.get('type')} ({code})" if code else str(event.get("type"))


def _moment(at: Ms) -> str:
    return datetime.fromtimestamp(at / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + "Z"


def _print(text: str) -> None:
    Console(soft_wrap=True).print(text, highlight=False)
