"""`tunery usage`: GPU time of a tenant, or tokens of its answers or of its sessions by kind."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import MAXYEAR, UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from schemas.session import TOKEN_KINDS
from tunery.billing.sessions import KIND_WORDS
from tunery.cli import _api
from tunery.client.shapes import UsageOf

if TYPE_CHECKING:
    from tunery.client import Api

EPILOG = """\
\b
Examples:
  tunery usage
  tunery usage --period 2026-11 --by day
  tunery usage --by model,key --json
  tunery usage --by metadata[team]
  tunery usage --tenant acme --by job
  tunery usage --answers --by model,key
  tunery usage --sessions --by day,session
"""
GROUPS = (
    "day",
    "job",
    "model",
    "key",
    "suffix",
    "metadata[NAME]",
    "lane",
    "role",
    "device",
    "spot",
)
FIELD_OF = {"job": "job_id", "model": "model", "key": "api_key_id", "session": "session_id"}


class Columns(NamedTuple):
    """Sums of a result, and the head of each."""

    sums: Sequence[str]
    heads: Sequence[str]


COLUMNS: Final[Mapping[UsageOf, Columns]] = {
    "time": Columns(
        ("used_gpu_ms", "billable_gpu_ms", "credited_gpu_ms", "net_gpu_ms"),
        ("used", "billable", "credited", "net"),
    ),
    "answers": Columns(
        (
            "num_model_requests",
            "input_tokens",
            "input_cached_tokens",
            "output_tokens",
            "engine_ms",
        ),
        ("requests", "read", "cached", "written", "engine"),
    ),
    "sessions": Columns(
        ("num_requests", *TOKEN_KINDS), ("requests", *map(KIND_WORDS.__getitem__, TOKEN_KINDS))
    ),
}
LIMIT = 31  # days of one request


@click.command("usage", epilog=EPILOG)
@click.option("--period", help="Calendar month (UTC), like 2026-11. [this month]")
@click.option("--by", "groups", help=f"Any of {', '.join(GROUPS)}, with commas.", default="")
@click.option("--tenant", help="Another tenant, for operators. [the key's]")
@click.option(
    "--answers",
    "of",
    flag_value="answers",
    help="Tokens of answers, by any of day, model, key. [GPU time]",
)
@click.option(
    "--sessions",
    "of",
    flag_value="sessions",
    help="Tokens of sessions by kind, by any of day, session. [GPU time]",
)
@_api.asking
def command(
    api: "Api",
    period: str | None,
    groups: str,
    tenant: str | None,
    of: UsageOf | None,
    as_json: bool,
) -> None:
    """Show the GPU time of a month, or the tokens that models or sessions have read and written."""
    query: dict[str, Any] = {"limit": LIMIT}
    if groups:
        query["group_by"] = groups
    if period is not None:
        query["start_time"], query["end_time"] = _bounds(period)
    buckets = list(api.usage(query, tenant, of=of or "time"))
    names = [name.strip() for name in groups.split(",") if name.strip()]
    columns = COLUMNS[of or "time"]
    lines = list(_lines(buckets, columns.sums, by_day="day" in names))
    _api.show_rows(
        buckets if as_json else lines,
        as_json,
        (*(names or ["time"]), *columns.heads),
        lambda line: (
            *([line[FIELD_OF.get(name, name)] for name in names] or ["total"]),
            *(_shown(name, line[name]) for name in columns.sums),
        ),
    )


def _shown(name: str, value: int) -> str:
    return _api.gpu_time(value) if name.endswith("_ms") else f"{value:,}"


def _bounds(period: str) -> tuple[int, int]:
    """The first second of a month, and of the one after it."""
    try:
        first = datetime.strptime(period, "%Y-%m").replace(tzinfo=UTC)
    except ValueError:
        text = f"{period!r} is not a month; write it like 2026-11"
        raise click.BadParameter(text, param_hint="--period") from None
    year, month = first.year + first.month // 12, first.month % 12 + 1
    if year > MAXYEAR:
        raise click.BadParameter(f"{period!r} is too far away", param_hint="--period")
    return int(first.timestamp()), int(datetime(year, month, 1, tzinfo=UTC).timestamp())


def _lines(
    buckets: Iterable[dict[str, Any]], sums: Sequence[str], *, by_day: bool
) -> Iterator[dict[str, Any]]:
    """Results as lines: those of each day, or their sums over the month."""
    lines: dict[tuple[Any, ...], dict[str, Any]] = {}
    for bucket in buckets:
        day = f"{datetime.fromtimestamp(bucket['start_time'], UTC):%Y-%m-%d}" if by_day else ""
        for result in bucket["results"]:
            group = {name: value for name, value in result.items() if name not in sums}
            pairs = group.pop("metadata", None) or {}
            group |= {f"metadata[{name}]": value for name, value in pairs.items()}
            line = lines.setdefault((day, *group.values()), {"day": day, **group})
            for name in sums:
                line[name] = line.get(name, 0) + result[name]
    yield from (lines[group] for group in sorted(lines, key=str))
