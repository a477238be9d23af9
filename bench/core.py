"""How fast the event core is, each figure beside the bare client in the same run.

    python -m bench.core [--json] [--quick]

Starts Kafka, PostgreSQL and object storage of its own. The log is fsynced record by record, as it
is on one machine. `--quick` measures so little that its figures mean nothing: it shows that the
bench works. Progress goes to stderr; with --json the last line is one object.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.log import appends, jobs, ledger, owners, replays
from schemas.envelope import Claim
from schemas.topics import PARTITIONS, TOPICS
from services.scheduler.app import JOBS
from tunery.local.stack import Stack, stack
from tunery.runtime.bus.abstract import Log
from tunery.runtime.hosts.process import spare_collector
from tunery.runtime.journal.codec import encode
from tunery.runtime.settings import RuntimeSettings

PROGRESS_RECORDS: Final = 100_000


@dataclass(frozen=True)
class Sizes:
    """How much is measured. A job is ten records of the journal."""

    appends: int = 1_000
    in_flight: int = 20_000
    jobs: int = 100_000
    replayed: int = 200_000
    ledger_batches: int = 200
    decisions: int = 30_000


QUICK: Final = Sizes(
    appends=20, in_flight=200, jobs=200, replayed=1_500, ledger_batches=3, decisions=500
)


@dataclass(frozen=True)
class Figure:
    """`goal`: as text. `peer`: what was measured beside it. `bound`: what limits the figure."""

    key: str
    goal: str
    peer: str
    bound: str


FIGURES: Final = (
    Figure(
        "append_read_back_p50_ratio",
        "<= 1.2",
        "bare_append_p50_ms",
        "one fsync of the broker; ours adds encoding and the hash",
    ),
    Figure(
        "pipelined_ratio",
        ">= 0.7",
        "bare_pipelined_per_s",
        "the client sends one batch of a partition at a time, and each is fsynced",
    ),
    Figure(
        "replay_events_per_s",
        ">= 150,000",
        "bare_fetch_events_per_s",
        "one core: decoding is half of it, the client's fetch a quarter, the hash a sixth",
    ),
    Figure(
        "replay_job_events_per_s",
        ">= 60,000",
        "bare_fetch_events_per_s",
        "one core: half is the replay above, half is evolve and its persistent maps",
    ),
    Figure(
        "ledger_events_per_s",
        ">= 60,000, or the ratio",
        "bare_ledger_events_per_s",
        "PostgreSQL: rows out of JSON, checks, a wide primary key, a second index",
    ),
    Figure(
        "ledger_ratio_to_bare",
        ">= 0.9",
        "bare_ledger_events_per_s",
        "the plan of changes, which makes any order of changes safe",
    ),
    Figure(
        "decisions_per_s",
        ">= 3,000",
        "bare_copied_per_s",
        "one core: decode, decide, encode, decode again, fold, and the client's send",
    ),
    Figure(
        "owner_rss_mb",
        "<= 300",
        "empty_rss_mb",
        "of each job a summary, and for 30 days its idempotency key",
    ),
    Figure(
        "boot_1m_from_snapshot_s",
        "",
        "bare_fetch_1m_s",
        "decoding the state; one record of the journal is compared",
    ),
    Figure("boot_1m_from_zero_s", "", "bare_fetch_1m_s", "the replay of `job` above"),
)


async def measure(sizes: Sizes) -> dict[str, float]:
    """All figures and all peers."""
    with tempfile.TemporaryDirectory(prefix="tunery-bench-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o711)
        say("starting Kafka, PostgreSQL and object storage")
        async with stack(folder) as running:
            settings = settings_of(running)
            async with owners.parts(settings) as bundle:
                await bundle.log.create(TOPICS, PARTITIONS)
                return await _all(bundle.log, settings, sizes)


async def _all(log: Log, settings: RuntimeSettings, sizes: Sizes) -> dict[str, float]:
    bootstrap = settings.kafka_bootstrap
    say("appends: one by one, then with the window in flight")
    found = await appends.measure(log, bootstrap, sizes.appends, sizes.in_flight)
    say("ledger: batches of slices, in turn with the bare statements")
    found |= await ledger.measure(settings.postgres_dsn, sizes.ledger_batches)
    say(f"decisions: {sizes.decisions:,} commands that lie ready")
    found |= await owners.decisions(settings, sizes.decisions)
    say(f"journal: the lives of {sizes.jobs:,} jobs")
    records = await replays.fill(log, JOBS.stream.journal.name, _journal(sizes.jobs))
    say(f"replay: the first {sizes.replayed:,} of {records:,} records, three times each")
    found |= await replays.measure(log, bootstrap, sizes.replayed)
    say("owners of their own process: from zero, and from a snapshot")
    found |= await owners.begin_again(settings, say)
    return found | _ratios(found)


def _journal(count: int) -> Iterator[bytes]:
    """A journal whose commands were trimmed: at its end an operator says so, with a new base."""
    written = 0
    for written, value in enumerate(jobs.journal(jobs.commands(count))):  # counted
        yield value
        if (written + 1) % PROGRESS_RECORDS == 0:
            say(f"  {written + 1:,} records")
    yield encode(Claim(owner="bench", nonce="1", base=written))


def _ratios(found: dict[str, float]) -> dict[str, float]:
    bare_events = found["bare_fetch_records_per_s"] * found["events_of_record"]
    return {
        "append_read_back_p50_ratio": found["append_p50_ms"] / found["bare_append_p50_ms"],
        "pipelined_ratio": found["pipelined_per_s"] / found["bare_pipelined_per_s"],
        "ledger_ratio_to_bare": found["ledger_events_per_s"] / found["bare_ledger_events_per_s"],
        "bare_fetch_events_per_s": bare_events,
        "bare_fetch_1m_s": 1_000_000 / found["bare_fetch_records_per_s"],
        "owner_rss_mb": max(found["zero_rss_mb"], found["snapshot_rss_mb"]),
    }


def settings_of(running: Stack) -> RuntimeSettings:
    return RuntimeSettings(
        kafka_bootstrap=running.kafka_bootstrap,
        postgres_dsn=running.postgres_dsn,
        s3_endpoint=running.s3_endpoint,
        s3_access_key=running.s3_access_key,
        s3_secret_key=running.s3_secret_key,
        s3_bucket=running.s3_bucket,
        data_dir=running.folders.root,
    )


BEGAN: Final = time.monotonic()


def say(line: str) -> None:
    print(f"{time.monotonic() - BEGAN:6.0f} s  {line}", file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--quick", action="store_true", help="so little that nothing is measured")
    arguments = parser.parse_args()
    spare_collector()
    found = asyncio.run(measure(QUICK if arguments.quick else Sizes()))
    if arguments.json:
        print(json.dumps({figure.key: round(found[figure.key], 3) for figure in FIGURES}))
        return
    for figure in FIGURES:
        beside = f"{figure.peer} {found[figure.peer]:,.2f}"
        print(f"{figure.key:27} {found[figure.key]:12,.2f}  {figure.goal:24} {beside}")
        print(f"{'':27} bound by: {figure.bound}")


if __name__ == "__main__":
    main()
