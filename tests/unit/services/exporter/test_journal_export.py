"""Each row of the journal is exported once, wherever the process is killed."""

import asyncio
import csv
import io
from collections import Counter
from collections.abc import AsyncIterable
from contextlib import suppress

import pytest

from schemas.account import PricesImported
from schemas.topics import ACCOUNT
from services.exporter.host import ExportHost
from services.exporter.settings import ExporterSettings
from tests.unit.services.exporter.journals import (
    BOOKS,
    HOUR,
    JournalWriter,
    credited,
    lease,
    sliced,
)
from tunery.platform.memory_servers import MemoryServers, memory_servers
from tunery.runtime.blobs.abstract import BlobsUnavailable, Stored
from tunery.runtime.blobs.memory import MemoryBlobs

SETTINGS = ExporterSettings(every_ms=100, rows_max=1)
SETTLE_S_MAX = 180
ExportedRow = tuple[int, int, str]  # partition, offset, GPU-milliseconds


class Killed(BaseException):
    """The process ends here, like after `kill -9`."""


class FragileBlobs(MemoryBlobs):
    """Ends the process before or after its n-th write; `away`: nothing can be reached."""

    def __init__(self) -> None:
        super().__init__()
        self.left: int | None = None
        self.after = False
        self.away = False

    async def put(
        self,
        key: str,
        data: bytes | AsyncIterable[bytes],
        *,
        sha256: str | None = None,
        if_absent: bool = False,
    ) -> Stored:
        if self.away:
            raise BlobsUnavailable("away")
        if self.left is not None:
            self.left -= 1
        if self.left == 0 and not self.after:
            raise Killed
        stored = await super().put(key, data, sha256=sha256, if_absent=if_absent)
        if self.left == 0:
            raise Killed
        return stored


def exported(blobs: MemoryBlobs, kind: str = "csv") -> Counter[ExportedRow]:
    """Every row of all files of a kind, by the place of its event."""
    rows: Counter[ExportedRow] = Counter()
    for key, body in blobs.bodies.items():
        if f"/exports/{kind}/" in key:
            for row in csv.DictReader(io.StringIO(body.decode())):
                rows[int(row["partition"]), int(row["offset"]), row["gpu_ms"]] += 1
    return rows


async def world() -> tuple[MemoryServers, FragileBlobs]:
    servers, blobs = await memory_servers(), FragileBlobs()
    prices = JournalWriter(servers.log, 0, ACCOUNT)
    for book in BOOKS.values():
        prices.append(PricesImported(book=book, sha256="ab" * 32))
    return MemoryServers(servers.log, blobs, servers.keys, servers.clock), blobs


async def run_until(servers: MemoryServers, expected: Counter[ExportedRow]) -> None:
    """Run a new process until everything expected is exported. Raises what ends it."""
    host = ExportHost(servers.runtime("exporter"), SETTINGS)
    running = asyncio.create_task(host.run())
    try:
        async with asyncio.timeout(SETTLE_S_MAX):
            while exported(servers.blobs) != expected and not running.done():  # noqa: ASYNC110  # of files
                await asyncio.sleep(0.01)
        if running.done():
            running.result()
        await asyncio.sleep(0.02)  # nothing more may come
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError, Killed):
            await running


def written(servers: MemoryServers) -> Counter[ExportedRow]:
    """Two partitions, two tenants, two months, a credit; five records and seven rows."""
    first, second = JournalWriter(servers.log, 2), JournalWriter(servers.log, 5)
    acme, other = lease(1), lease(2, "other")
    expected: Counter[ExportedRow] = Counter()
    for partition, journal, events in (
        (2, first, (sliced(acme, 10), sliced(acme, 20, HOUR - 1))),
        (2, first, (sliced(other, 30),)),
        (5, second, (sliced(other, 40),)),
        (2, first, (credited(acme, 5), sliced(acme, 50))),
        (5, second, (sliced(acme, 60),)),
    ):
        offset = journal.append(*events)
        for event in events:
            gpu_ms = getattr(event, "billable_gpu_ms", None) or -event.lost_gpu_ms  # type: ignore[union-attr]  # a credit has no billable time
            expected[partition, offset, str(gpu_ms)] += 1
    return expected


async def test_every_row_is_in_one_file_of_its_tenant_and_month() -> None:
    servers, blobs = await world()
    expected = written(servers)
    await run_until(servers, expected)
    folders = {key.rpartition("/")[0] for key in blobs.bodies if key.startswith("t/")}
    assert folders == {
        f"t/{tenant}/exports/{kind}/{month}"
        for tenant, month in (("acme", "2026-10"), ("acme", "2026-11"), ("other", "2026-11"))
        for kind in ("csv", "focus-csv", "focus-parquet")
    }
    assert sum(expected.values()) == 7


@pytest.mark.parametrize("after", [False, pytest.param(True, marks=pytest.mark.long)])
async def test_a_process_killed_at_any_write_leaves_nothing_twice_and_nothing_out(
    after: bool,
) -> None:
    for number in range(1, 100):
        servers, blobs = await world()
        expected = written(servers)
        blobs.left, blobs.after = number, after
        with suppress(Killed):
            await run_until(servers, expected)
            if blobs.left:
                assert number > 10  # it was not killed any more: all writes are covered
                return
        blobs.left = None
        await run_until(servers, expected)
        journal = JournalWriter(servers.log, 7)
        expected[7, journal.append(sliced(lease(9), 70)), "70"] += 1
        await run_until(servers, expected)
    raise AssertionError("there are more writes than were tried")


async def test_a_bucket_that_is_away_costs_nothing_but_time() -> None:
    servers, blobs = await world()
    expected = written(servers)
    blobs.away = True
    with pytest.raises(BlobsUnavailable):
        await run_until(servers, expected)
    blobs.away = False
    await run_until(servers, expected)


async def test_two_processes_write_each_row_once() -> None:
    servers, _ = await world()
    expected = written(servers)
    ended = await asyncio.gather(
        run_until(servers, expected), run_until(servers, expected), return_exceptions=True
    )
    await run_until(servers, expected)  # one that found another's range begins again
    assert {type(end).__name__ for end in ended} <= {"NoneType", "AnotherWriter"}
