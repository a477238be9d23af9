"""A journal that a test writes, the ledger that billing makes of it, and the exporter's files."""

import asyncio
import csv
import io
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime
from itertools import count
from typing import Any, Final, TypeAlias

import asyncpg
import msgspec
from pyarrow import parquet

from schemas.account import (
    USAGE_RECORDED,
    CreateEndpoint,
    CreateTenant,
    DeliveryDue,
    EndpointCreated,
    Limits,
    PlanTerms,
)
from schemas.billing import HourlyUse
from schemas.endpoints import EndpointTerms
from schemas.sealed import Sealed
from schemas.topics import ACCOUNT, POOL, STREAMS
from schemas.units import HOUR_MS
from services.exporter.domain.ranges import ExportRange, newest_key, range_key
from tests.integration.services.exporter.s3_gate import S3Gate
from tests.processes import Process, python_process
from tests.stacks import sweep, temporary_data_dir
from tests.unit.services.exporter.journals import HOUR, JournalRecords, credited, lease, sliced
from tunery.local.stack import Stack, stack
from tunery.platform.blobs.s3 import S3Blobs, S3Settings, connect
from tunery.platform.bus.kafka import KafkaLog
from tunery.runtime.blobs.abstract import BlobMissing
from tunery.runtime.bus.sender import Sender
from tunery.runtime.journal.history import read_history
from tunery.runtime.journal.reader import START, Position

PARTITIONS: Final = (2, 5)
KINDS: Final = ("focus-parquet", "focus-csv", "csv")
EVERY_MS: Final = 100
ROWS_MAX: Final = 4
EXPORT_S_MAX: Final = 180
FED: Final = "acme"
UNREADABLE: Final = Sealed("k", b"", b"")
POLL_S: Final = 0.1
#: tenant, job, hour, credit or use, partition, offset, GPU-milliseconds
LedgerEntry: TypeAlias = tuple[str, str, str, str, int, int, int]


class Exports:
    """Records of the log, rows of the ledger, and contents of the exported files.

    gate: between the exporter and S3.
    """

    def __init__(self, running: Stack, gate: S3Gate, endpoint: str, log: KafkaLog) -> None:
        self.stack, self.gate = running, gate
        self._endpoint, self._log = endpoint, log
        self._settings = S3Settings(
            running.s3_endpoint, running.s3_access_key, running.s3_secret_key, running.s3_bucket
        )
        self.blobs = S3Blobs(self._settings)
        self._journals: dict[int, JournalRecords] = {}
        self.ends: dict[int, int] = {}
        self._waves = count()

    def process(
        self, every_ms: int = EVERY_MS, rows_max: int = ROWS_MAX
    ) -> AbstractAsyncContextManager[Process]:
        """A new process of the exporter, which reaches S3 through the gate."""
        environment = {
            **self.stack.env,
            "TUNERY_S3_ENDPOINT": self._endpoint,
            "TUNERY_EXPORTER_EVERY_MS": str(every_ms),
            "TUNERY_EXPORTER_ROWS_MAX": str(rows_max),
        }
        return python_process(environment, "-m", "services.exporter")

    async def subscribe(self) -> None:
        """The tenant acme has an endpoint for its use, as billing has decided."""
        terms = PlanTerms(
            lane="standard",
            limits=Limits(soft_gpu_ms=0, hard_gpu_ms=0, concurrency=1),
            price_version="2026-11",
        )
        endpoint = EndpointTerms(
            endpoint_id="we_1", name=UNREADABLE, url=UNREADABLE, event_types=(USAGE_RECORDED,)
        )
        sender = Sender(self._log, STREAMS, keys=self.stack.settings.keys.sender_keys("gateway"))
        for body in (CreateTenant(name=UNREADABLE, terms=terms), CreateEndpoint(terms=endpoint)):
            await sender.send(ACCOUNT, FED, FED, body)

        async def complete() -> bool:
            return bool(await self._decided(EndpointCreated))

        await _until(complete)

    async def announced(self) -> Mapping[str, HourlyUse]:
        """Expected deliveries of the endpoint, by the id of the event."""
        due = [event for event in await self._decided(DeliveryDue) if event.event.usage]
        return {delivery.event.event_id: delivery.event.usage for delivery in due}

    async def _decided(self, kind: type[Any]) -> list[Any]:
        history = read_history(self._log, ACCOUNT)
        return [e async for entry in history for e in entry.events if isinstance(e, kind)]

    async def write(self) -> None:
        """Two records in each partition, of two tenants, in two months, with two credits."""
        number = next(self._waves)
        acme, other = lease(2 * number), lease(2 * number + 1, "other")
        for partition in PARTITIONS:
            if partition not in self._journals:
                self._journals[partition] = JournalRecords()
                await self._append(partition, self._journals[partition].claim)
            for events in (
                (sliced(acme, 1_000 + number), sliced(other, 20 + partition, HOUR - 1)),
                (sliced(acme, 30, HOUR - 1), credited(acme, 7), credited(other, 3, HOUR - 1)),
            ):
                await self._append(partition, self._journals[partition].following(*events))

    async def _append(self, partition: int, value: bytes) -> None:
        appended = await self._log.send(POOL.journal.name, b"default", value, partition)
        self.ends[partition] = appended.offset + 1

    async def await_exported(self) -> None:
        """Wait until the newest files of each partition end where its journal does."""

        async def complete() -> bool:
            return {at: await self._complete_end(at) for at in PARTITIONS} == self.ends

        await _until(complete)

    async def _complete_end(self, partition: int) -> int:
        """Where the newest range ends whose files are all there; the next one may be begun."""
        newest = await self._stored(newest_key(POOL.name, partition), Position)
        if newest is None:
            return 0
        written: ExportRange = await self._stored(
            range_key(POOL.name, partition, newest), ExportRange
        )
        return written.end.offset

    async def chain(self, partition: int) -> list[Position]:
        """Where ranges begin and end, from the first one on."""
        positions = [START]
        while written := await self._stored(
            range_key(POOL.name, partition, positions[-1]), ExportRange
        ):
            assert written.first == positions[-1]
            positions.append(written.end)
        return positions

    async def _stored(self, key: str, kind: type[Any]) -> Any:
        try:
            return msgspec.json.decode(await self.blobs.get(key), type=kind)
        except BlobMissing:
            return None

    async def files(self) -> Mapping[str, bytes]:
        """All files of tenants by name."""
        pages = connect(self._settings).get_paginator("list_objects_v2")
        listed = pages.paginate(Bucket=self.stack.s3_bucket, Prefix="t/")
        names = [entry["Key"] for page in listed for entry in page.get("Contents", ())]
        return {name: await self.blobs.get(name) for name in names if "/exports/" in name}

    async def ledger(self) -> Counter[LedgerEntry]:
        """The rows of billing, once it has read the journal."""
        connection = await asyncpg.connect(self.stack.postgres_dsn)
        query = "SELECT journal_partition, max(journal_offset) + 1 FROM billing.ledger GROUP BY 1"

        async def complete() -> bool:
            return {row[0]: row[1] for row in await connection.fetch(query)} == self.ends

        try:
            await _until(complete)
            rows = await connection.fetch("SELECT * FROM billing.ledger")
        finally:
            await connection.close()
        return Counter(
            (
                row["tenant"],
                row["job_id"],
                _text(datetime.fromtimestamp(row["hour_utc"] * HOUR_MS // 1_000, UTC)),
                row["kind"],
                row["journal_partition"],
                row["journal_offset"],
                row["gpu_ms"],
            )
            for row in rows
        )


@asynccontextmanager
async def exports_of_a_stack() -> AsyncIterator[Exports]:
    """Servers and billing of their own, and no exporter yet."""
    sweep()
    with temporary_data_dir() as folder:
        async with stack(folder, services=("billing",), environ={}) as running:
            gate = S3Gate(running.s3_endpoint)
            log = KafkaLog(running.kafka_as())
            async with gate.open() as endpoint:
                exports = Exports(running, gate, endpoint, log)
                yield exports
                await exports.blobs.close()
                await log.close()


def entries_of(kind: str, files: Mapping[str, bytes]) -> Counter[LedgerEntry]:
    """The rows of all files of a kind, which all can be read, as the ledger has them."""
    bodies = [body for name, body in files.items() if f"/exports/{kind}/" in name]
    read = parquet_rows if kind.endswith("parquet") else _csv_rows
    columns = PLAIN_COLUMNS if kind == "csv" else FOCUS_COLUMNS
    return Counter(_entry(row, columns) for body in bodies for row in read(body))


#: in the order of a `LedgerEntry`
FOCUS_COLUMNS: Final = (
    *("BillingAccountId", "ResourceId", "ChargePeriodStart", "ChargeCategory"),
    *("x_JournalPartition", "x_JournalOffset", "x_GpuMilliseconds"),
)
PLAIN_COLUMNS: Final = ("tenant", "job_id", "hour", "kind", "partition", "offset", "gpu_ms")


def parquet_rows(body: bytes) -> Iterable[dict[str, Any]]:
    rows: list[dict[str, Any]] = parquet.read_table(io.BytesIO(body)).to_pylist()
    return rows


def _csv_rows(body: bytes) -> Iterable[dict[str, Any]]:
    assert body.endswith(b"\n")
    return csv.DictReader(io.StringIO(body.decode()))


def _entry(row: Mapping[str, Any], columns: Iterable[str]) -> LedgerEntry:
    tenant, job_id, hour, kind, *numbers = (row[column] for column in columns)
    partition, offset, gpu_ms = map(int, numbers)
    at = hour if isinstance(hour, str) else _text(hour)
    return tenant, job_id, at, kind.lower(), partition, offset, gpu_ms


def _text(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


async def _until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(EXPORT_S_MAX):
        while not await condition():  # noqa: ASYNC110  # another process writes what is awaited
            await asyncio.sleep(POLL_S)
