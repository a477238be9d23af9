"""Reads traces of jobs: CSV with a header, and the Standard Workload Format."""

import csv
import gzip
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TextIO

from schemas.units import Ms
from tunery.plan.scheduling.requests import LANES

SECOND_MS: Final = 1_000
# Fields of a line of the Standard Workload Format, counted from 0.
SWF_FIELDS_MIN: Final = 5
SWF_JOB, SWF_SUBMIT, SWF_RUN, SWF_PROCESSORS, SWF_REQUESTED, SWF_USER = 0, 1, 3, 4, 8, 11


class TraceUnreadable(Exception):
    """A file that is no trace of jobs. The message says where and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceJob:
    """A job of a trace.

    job_id: made of a fixed width, so that it sorts by its place in the file.
    submitted_at: since the begin of the trace.
    duration_ms: how long it runs undisturbed.
    estimate_ms: how long its owner thinks.
    slots: how many it needs at the same time.
    tenant: whose it is.
    lane: index in `LANES`.
    """

    job_id: str
    submitted_at: Ms
    duration_ms: Ms
    estimate_ms: Ms
    slots: int
    tenant: str
    lane: int


def read_trace(path: Path) -> list[TraceJob]:
    """All jobs of a file that ran. Raises TraceUnreadable for what cannot be understood."""
    is_compressed = path.suffix == ".gz"
    name = path.name.removesuffix(".gz")
    read = _swf if name.endswith(".swf") else _csv
    try:
        with gzip.open(path, "rt") if is_compressed else path.open() as lines:
            jobs = list(read(lines))
    except (OSError, UnicodeDecodeError, KeyError, ValueError, IndexError) as error:
        raise TraceUnreadable(f"{path} is not a trace of jobs: {error!r}.") from error
    if not jobs:
        raise TraceUnreadable(f"{path} has no job that ran.")
    return jobs


def _csv(lines: TextIO) -> Iterator[TraceJob]:
    for row in csv.DictReader(lines):
        duration_ms = _ms(row["duration_s"])
        slots = int(float(row["gpus"]))
        if slots < 1 or duration_ms < 1:
            continue
        yield TraceJob(
            job_id=row["job_id"].zfill(8),
            submitted_at=_ms(row["submit_s"]),
            duration_ms=duration_ms,
            estimate_ms=_ms(row["est_s"]) if row.get("est_s") else duration_ms,
            slots=slots,
            tenant=row.get("tenant") or "",
            lane=[*LANES].index(row.get("tier") or "standard"),
        )


def _swf(lines: TextIO) -> Iterator[TraceJob]:
    for line in lines:
        fields = line.split()
        if not fields or line.startswith(";") or len(fields) < SWF_FIELDS_MIN:
            continue
        duration_ms, slots = _ms(fields[SWF_RUN]), int(fields[SWF_PROCESSORS])
        if slots < 1 or duration_ms < 1:
            continue
        requested = fields[SWF_REQUESTED] if len(fields) > SWF_REQUESTED else "-1"
        yield TraceJob(
            job_id=fields[SWF_JOB].zfill(8),
            submitted_at=_ms(fields[SWF_SUBMIT]),
            duration_ms=duration_ms,
            estimate_ms=_ms(requested) if float(requested) > 0 else duration_ms,
            slots=slots,
            tenant=fields[SWF_USER] if len(fields) > SWF_USER else "",
            lane=[*LANES].index("standard"),
        )


def _ms(seconds: str) -> Ms:
    return round(float(seconds) * SECOND_MS)
