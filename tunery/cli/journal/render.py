"""Journal records in a terminal."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from schemas.units import Ms
from tunery.cli import _api
from tunery.runtime.tools.inspection import Looked, Tally, Verdict

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


def line(one: Looked) -> None:
    """One record in one line; its reason and fix below it where it does not count."""
    content: Any = one.content if isinstance(one.content, dict) else {}
    names = ", ".join(_name(event) for event in content.get("events", ()))
    said = names or one.why or ("no events" if one.content is not None else "")
    _print(
        f"{_moment(one.timestamp)}  {one.partition}:{one.offset:<7} "
        f"[{COLOURS[one.verdict]}]{one.verdict:<10}[/]  {escape(one.key or '-')}  {escape(said)}"
    )
    if names and one.why:
        _print(f"    {escape(one.why)}")
    if one.fix:
        _print(f"    fix: {escape(one.fix)}")


def record(one: Looked) -> None:
    """All of one record."""
    _api.show_one(
        {},
        False,
        (
            ("place", f"{one.stream}/{one.partition} at offset {one.offset}"),
            ("written", _moment(one.timestamp)),
            ("verdict", one.verdict),
            ("why", one.why),
            ("fix", one.fix),
            ("key", one.key),
            ("bytes", one.bytes),
        ),
    )
    if one.content is not None:
        text = msgspec.json.format(msgspec.json.encode(one.content), indent=2).decode()
        _print(escape(text))


def table(tallies: Sequence[Tally], *, err: bool) -> None:
    """One line for each partition that holds something, and what is wrong with it."""
    grid = Table("partition", "records", "accepted", "void", "claims", "next command", "head")
    for tally in tallies:
        if tally.records:
            counts = (tally.records, tally.accepted, tally.void, tally.claims, tally.cause + 1)
            place = f"{tally.stream}/{tally.partition}"
            grid.add_row(place, *map(str, counts), tally.head[:HEAD_SHOWN])
    console = Console(stderr=err, width=None if _api.interactive() else _api.PIPE_WIDTH)
    console.print(grid if grid.row_count else "nothing yet", highlight=False)
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
