"""Measures the event core; each figure compared with the bare client in the same run.

    python -m bench.core [--json] [--quick]

It starts its own Kafka, PostgreSQL and object storage. The log is fsynced record by record, as on
a single machine. `--quick` measures too little for meaningful figures: it shows that the bench
works. Progress goes to stderr; with --json the last line is one object.
"""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from bench.log import accounts, appends, drivers, jobs, ledger, owners, replays, tracing
from bench.measures import data_folder
from schemas.envelope import Claim
from schemas.streams import PARTITIONS
from schemas.topics import TOPICS
from services.scheduler.app import JOBS
from tests.kafka_brokers import OPEN, broker
from tunery.local.stack import Stack, stack
from tunery.platform.connections import kafka_settings
from tunery.platform.process import spare_collector
from tunery.platform.settings import RuntimeSettings
from tunery.runtime.bus.abstract import Log
from tunery.runtime.journal.codec import encode

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
class Goal:
    """A figure with its goal."""

    key: str
    goal: str
    peer: str  # key of the bare figure beside it
    bound: str  # what limits the figure


TRACES: Final = ("sampled", "traced")  # one request of 50, and all
GOALS: Final = (
    Goal(
        "append_read_back_p50_ratio",
        "<= 1.2",
        "bare_append_p50_ms",
        "one fsync of the broker; ours adds encoding and the hash",
    ),
    Goal(
        "pipelined_ratio",
        ">= 0.7",
        "bare_pipelined_per_s",
        "the client sends one batch of a partition at a time, and each is fsynced",
    ),
    Goal(
        "replay_events_per_s",
        ">= 150,000",
        "bare_fetch_events_per_s",
        "one core: decoding is half of it, the client's fetch a quarter, the hash a sixth",
    ),
    Goal(
        "replay_job_events_per_s",
        ">= 60,000",
        "bare_fetch_events_per_s",
        "one core: half is the replay above, half is evolve and its persistent maps",
    ),
    Goal(
        "ledger_events_per_s",
        ">= 60,000, or the ratio",
        "bare_ledger_events_per_s",
        "PostgreSQL: rows out of JSON, checks, a wide primary key, a second index",
    ),
    Goal(
        "ledger_ratio_to_bare",
        ">= 0.9",
        "bare_ledger_events_per_s",
        "the plan of changes, which makes any order of changes safe",
    ),
    Goal(
        "decisions_per_s",
        ">= 3,000",
        "bare_copied_per_s",
        "one core: decode, decide, encode, decode again, fold, and the client's send",
    ),
    Goal(
        "confluent_append_ratio",
        "",
        "aiokafka_append_p50_ms",
        "the fsync; librdkafka's threads wake the loop for each acknowledgement",
    ),
    Goal(
        "confluent_pipelined_ratio",
        "",
        "aiokafka_pipelined_per_s",
        "requests in flight: librdkafka sends five at a time, smaller ones",
    ),
    Goal(
        "confluent_decisions_ratio",
        "",
        "aiokafka_decisions_per_s",
        "one core, which librdkafka's threads share with the loop",
    ),
    Goal(
        "sampled_lost_percent",
        "<= 3",
        "untraced_cpu_us",
        "one request of 50 has the spans of the next line, the others have none",
    ),
    Goal(
        "traced_lost_percent",
        "",
        "untraced_cpu_us",
        "a span of each decision is kept, encoded with its batch and sent, in the same process",
    ),
    Goal(
        "owner_rss_mb",
        "<= 300",
        "empty_rss_mb",
        "of each job a summary, and for 30 days its idempotency key",
    ),
    Goal(
        "boot_1m_from_snapshot_s",
        "",
        "bare_fetch_1m_s",
        "decoding the state; one record of the journal is compared",
    ),
    Goal("boot_1m_from_zero_s", "", "bare_fetch_1m_s", "the replay of `job` above"),
    Goal(
        "secured_append_p50_ratio",
        "<= 1.1",
        "open_append_p50_ms",
        "rights are looked up in memory, once a request",
    ),
    Goal(
        "secured_pipelined_ratio",
        ">= 0.9",
        "open_pipelined_per_s",
        "the same, and nothing is encrypted on one machine",
    ),
    Goal(
        "secured_connect_p50_ms",
        "",
        "open_connect_p50_ms",
        "two rounds of SCRAM, in which the client hashes its password 4,096 times, per connection",
    ),
)


async def measure(sizes: Sizes) -> dict[str, float]:
    """Measure all figures and all peers; returns them by key."""
    with data_folder() as folder:
        log_progress("starting Kafka, PostgreSQL and object storage")
        async with stack(folder) as running:
            settings = settings_of(running)
            async with owners.parts(settings) as bundle:
                await bundle.log.create(TOPICS, PARTITIONS)
                figures = await _all(bundle.log, settings, sizes)
            log_progress("accounts: this Kafka beside an open one")
            async with broker(folder / "open", OPEN) as opened:
                return figures | await accounts.measure(
                    running.kafka_as(), opened.anybody(), sizes.appends, sizes.in_flight
                )


async def _all(log: Log, settings: RuntimeSettings, sizes: Sizes) -> dict[str, float]:
    options = kafka_settings(settings).client_options
    log_progress("appends: one after the other, then with a window in flight")
    figures = await appends.measure(log, options, sizes.appends, sizes.in_flight)
    log_progress("ledger: batches of slices, alternating with the bare statements")
    assert settings.postgres_dsn is not None
    figures |= await ledger.measure(settings.postgres_dsn, sizes.ledger_batches)
    log_progress(f"decisions: {sizes.decisions:,} prepared commands")
    figures |= await owners.decisions(settings, sizes.decisions)
    log_progress("clients of Kafka: aiokafka and confluent-kafka in turns")
    figures |= await drivers.measure(settings, sizes.appends, sizes.in_flight, sizes.decisions)
    log_progress(f"traces: off, of one request of 50, of all; {tracing.ROUNDS} times each")
    figures |= await tracing.measure()
    log_progress(f"journal: the lives of {sizes.jobs:,} jobs")
    records = await replays.fill(log, JOBS.stream.journal.name, _journal(sizes.jobs))
    log_progress(f"replay: the first {sizes.replayed:,} of {records:,} records, three times each")
    figures |= await replays.measure(log, options, sizes.replayed)
    log_progress("owners in processes of their own: from zero, and from a snapshot")
    figures |= await owners.measure_restarts(settings, log_progress)
    return figures | _ratios(figures)


def _journal(count: int) -> Iterator[bytes]:
    """A journal whose commands were trimmed; it ends with an operator's claim with a new base."""
    written = 0
    for written, value in enumerate(jobs.journal(jobs.commands(count))):  # counted
        yield value
        if (written + 1) % PROGRESS_RECORDS == 0:
            log_progress(f"  {written + 1:,} records")
    yield encode(Claim(owner="bench", nonce="1", base=written))


def _ratios(figures: dict[str, float]) -> dict[str, float]:
    lost = {kind: figures[f"{kind}_cpu_us"] * figures["decisions_per_s"] for kind in TRACES}
    bare_events = figures["bare_fetch_records_per_s"] * figures["events_of_record"]
    return {
        "append_read_back_p50_ratio": figures["append_p50_ms"] / figures["bare_append_p50_ms"],
        "pipelined_ratio": figures["pipelined_per_s"] / figures["bare_pipelined_per_s"],
        "ledger_ratio_to_bare": figures["ledger_events_per_s"]
        / figures["bare_ledger_events_per_s"],
        **{f"{kind}_lost_percent": 100 * us / (1e6 + us) for kind, us in lost.items()},
        "bare_fetch_events_per_s": bare_events,
        "bare_fetch_1m_s": 1_000_000 / figures["bare_fetch_records_per_s"],
        "owner_rss_mb": max(figures["zero_rss_mb"], figures["snapshot_rss_mb"]),
    }


def settings_of(running: Stack) -> RuntimeSettings:
    """Return the settings of a measuring process, with an operator's rights."""
    return RuntimeSettings(
        kafka_bootstrap=running.kafka_bootstrap,
        **running.settings.kafka_login(),
        command_keys=running.env["TUNERY_COMMAND_KEYS"],
        postgres_dsn=running.postgres_dsn,
        s3_endpoint=running.s3_endpoint,
        s3_access_key=running.s3_access_key,
        s3_secret_key=running.s3_secret_key,
        s3_bucket=running.s3_bucket,
        data_dir=running.folders.root,
    )


STARTED: Final = time.monotonic()


def log_progress(line: str) -> None:
    print(f"{time.monotonic() - STARTED:6.0f} s  {line}", file=sys.stderr, flush=True)


def main() -> None:
    """Measure, and print the figures with their goals, or as one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--quick", action="store_true", help="so little that nothing is measured")
    arguments = parser.parse_args()
    spare_collector()
    figures = asyncio.run(measure(QUICK if arguments.quick else Sizes()))
    if arguments.json:
        print(json.dumps({goal.key: round(figures[goal.key], 3) for goal in GOALS}))
        return
    for goal in GOALS:
        beside = f"{goal.peer} {figures[goal.peer]:,.2f}"
        print(f"{goal.key:27} {figures[goal.key]:12,.2f}  {goal.goal:24} {beside}")
        print(f"{'':27} bound by: {goal.bound}")


if __name__ == "__main__":
    main()
