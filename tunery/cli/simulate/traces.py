"""Reads traces of jobs: CSV with a header, the Standard Workload Format, journals of the pool."""

import csv
import gzip
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from schemas.units import Ms
from tunery.cli.simulate.journals import JournalUnreadable, PoolHistory, is_journal, read_history
from tunery.cli.simulate.trace_jobs import TraceJob
from tunery.plan.scheduling.requests import LANES

SECOND_MS: Final = 1_000
GZIP_MAGIC: Final = b"\x1f\x8b"
# Names of columns: ours first, then those of published copies of the Philly trace.
COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "job": ("job_id", "jobid"),
    "submitted": ("submit_s", "submit_time", "submitted_time"),
    "duration": ("duration_s", "duration", "real_duration"),
    "slots": ("gpus", "num_gpu", "num_gpus", "gpu_num"),
    "tenant": ("tenant", "vc", "user"),
    "lane": ("tier", "lane"),
    "estimate": ("est_s", "estimate_s"),
}
NEEDED: Final = ("submitted", "duration", "slots")
# Fields of a line of the Standard Workload Format, counted from 0.
SWF_FIELDS_MIN: Final = 5
SWF_JOB, SWF_SUBMIT, SWF_RUN, SWF_PROCESSORS, SWF_REQUESTED, SWF_USER = 0, 1, 3, 4, 8, 11
STANDARD: Final = [*LANES].index("standard")


class TraceUnreadable(Exception):
    """A file that is no trace of jobs. The message says the file, the line and why."""


@dataclass(frozen=True, slots=True)
class Trace:
    """Content of a trace file."""

    jobs: list[TraceJob]  # jobs that ran
    left_out: int = 0  # number of jobs that did not run, or had not ended
    # jobs and nodes of an exported journal; None for other traces
    history: PoolHistory | None = None


def read_trace(path: Path) -> list[TraceJob]:
    """All jobs of a file that ran. Raises TraceUnreadable for what cannot be understood."""
    return open_trace(path).jobs


def open_trace(path: Path) -> Trace:
    """A file as a trace. Raises TraceUnreadable."""
    content = read_content(path)
    name = path.name.removesuffix(".gz")
    if is_journal(content):
        try:
            history = read_history(io.BytesIO(content))
        except JournalUnreadable as error:
            raise TraceUnreadable(f"{path}, {error}") from error
        trace = Trace(history.jobs, history.jobs_open, history)
    else:
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = content[: error.start].count(b"\n") + 1
            raise TraceUnreadable(f"{path}, line {line}: this is not UTF-8 text.") from error
        read = _swf if name.endswith(".swf") else _csv
        try:
            rows = list(read(text))
        except _BadLine as error:
            raise TraceUnreadable(f"{path}, line {error.number}: {error.why}.") from error
        jobs = [job for job in rows if job is not None]
        trace = Trace(jobs, len(rows) - len(jobs))
    if not trace.jobs:
        raise TraceUnreadable(f"{path} has no job that ran; {trace.left_out} are left out.")
    return trace


class _BadLine(Exception):
    """A line of a trace that cannot be parsed, with its number and the reason."""

    def __init__(self, number: int, why: str) -> None:
        super().__init__(why)
        self.number, self.why = number, why


def read_content(path: Path) -> bytes:
    """Read and decompress a whole file. Raises TraceUnreadable."""
    try:
        content = path.read_bytes()
        return gzip.decompress(content) if content.startswith(GZIP_MAGIC) else content
    except (OSError, EOFError) as error:
        raise TraceUnreadable(f"{path} cannot be read: {error}.") from error


def _csv(text: str) -> Iterator[TraceJob | None]:
    """Yield the job of each row; None: it did not run."""
    rows = csv.reader(io.StringIO(text))
    header = next(rows, [])
    columns = {
        meaning: next((header.index(name) for name in names if name in header), None)
        for meaning, names in COLUMNS.items()
    }
    for meaning in NEEDED:
        if columns[meaning] is None:
            names = " or ".join(COLUMNS[meaning])
            raise _BadLine(1, f"this is not a trace of jobs: its header has no column {names}")
    for row in rows:
        if row:
            yield _csv_job(row, columns, rows.line_num)


def _csv_job(row: Sequence[str], columns: Mapping[str, int | None], number: int) -> TraceJob | None:
    def field(meaning: str) -> str:
        column = columns[meaning]
        if column is None:
            return ""
        if column >= len(row):
            raise _BadLine(number, f"it has {len(row)} fields, {meaning} is field {column + 1}")
        return row[column].strip()

    def value(meaning: str, convert: Callable[[str], int]) -> int:
        try:
            return convert(field(meaning))
        except (ValueError, OverflowError):
            raise _BadLine(number, f"{meaning}: {field(meaning)!r} is not a number") from None

    duration_ms = value("duration", _ms)
    slots = value("slots", _whole)
    lane = field("lane") or "standard"
    if lane not in LANES:
        raise _BadLine(number, f"tier: {lane!r} is none of {', '.join(LANES)}")
    submitted_at = value("submitted", _moment)
    estimate_ms = value("estimate", _ms) if field("estimate") else duration_ms
    if slots < 1 or duration_ms < 1:
        return None
    return TraceJob(
        job_id=(field("job") or str(number)).zfill(8),
        submitted_at=submitted_at,
        duration_ms=duration_ms,
        estimate_ms=max(1, estimate_ms),
        slots=slots,
        tenant=field("tenant"),
        lane=[*LANES].index(lane),
    )


def _swf(text: str) -> Iterator[TraceJob | None]:
    """Yield the job of each line; None: it did not run."""
    for number, line in enumerate(text.splitlines(), start=1):
        fields = line.split()
        if not fields or line.startswith(";"):
            continue
        if len(fields) < SWF_FIELDS_MIN:
            raise _BadLine(number, f"it has {len(fields)} of at least {SWF_FIELDS_MIN} fields")
        try:
            submitted_at, duration_ms = _ms(fields[SWF_SUBMIT]), _ms(fields[SWF_RUN])
            slots = _whole(fields[SWF_PROCESSORS])
            requested = fields[SWF_REQUESTED] if len(fields) > SWF_REQUESTED else "-1"
            requested_ms = _ms(requested)
        except (ValueError, OverflowError) as error:
            raise _BadLine(number, f"a field is not a number ({error})") from error
        if slots < 1 or duration_ms < 1:
            yield None
            continue
        yield TraceJob(
            job_id=fields[SWF_JOB].zfill(8),
            submitted_at=submitted_at,
            duration_ms=duration_ms,
            estimate_ms=requested_ms if requested_ms > 0 else duration_ms,
            slots=slots,
            tenant=fields[SWF_USER] if len(fields) > SWF_USER else "",
            lane=STANDARD,
        )


def _ms(seconds: str) -> Ms:
    return round(float(seconds) * SECOND_MS)


def _whole(number: str) -> int:
    return int(float(number))


def _moment(submitted: str) -> Ms:
    """Seconds, or a date with a time as the Philly trace has it."""
    try:
        return _ms(submitted)
    except ValueError:
        moment = datetime.fromisoformat(submitted)
        with_zone = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return _ms(str(with_zone.timestamp()))
