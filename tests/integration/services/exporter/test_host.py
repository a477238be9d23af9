"""The exporter's process is killed at every kind of write, and while its bucket is away.

Kafka, S3 and PostgreSQL are real, and billing's process writes the ledger that files must equal.
"""

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator
from typing import Final

import pytest
import pytest_asyncio

from tests.integration.services.exporter.exports import (
    FED,
    KINDS,
    PARTITIONS,
    Exports,
    LedgerEntry,
    entries_of,
    exports_of_a_stack,
)
from tests.integration.services.exporter.s3_gate import MOMENTS, Moment, Trap
from tests.processes import Process

pytestmark = pytest.mark.timeout(900)

#: the objects of a range by a part of their names, in the order in which they are written
RANGE: Final = "/exports/pool/2/0"
WRITTEN: Final = (RANGE, "/focus-parquet/", "/exports/csv/", "newest.json")
KILLED_S_MAX: Final = 180
OUTAGE_S: Final = 2.0


@pytest_asyncio.fixture
async def exports() -> AsyncIterator[Exports]:
    async with exports_of_a_stack() as ready:
        yield ready


async def test_exports_equal_the_ledger_wherever_the_process_is_killed(exports: Exports) -> None:
    await exports.subscribe()
    await exports.write()
    seen = dict[str, bytes]()
    for moment in MOMENTS:
        for key in WRITTEN:
            await kill_at_a_write(exports, key, moment)
        await kill_at_a_write(exports, "/focus-csv/", moment, at_start=True)
        seen |= await exports.files()
    await live_through_a_paused_bucket(exports)
    await live_through_a_lost_bucket(exports)

    files, ledger = await exports.files(), await exports.ledger()
    assert {name: files[name] for name in seen} == seen  # no file has changed or gone
    assert set(ledger.values()) == {1}
    for kind in KINDS:
        assert entries_of(kind, files) == ledger, kind
    await check_feed(exports, ledger)
    for partition in PARTITIONS:
        assert (await exports.chain(partition))[-1].offset == exports.ends[partition]


async def kill_at_a_write(
    exports: Exports, key: str, moment: Moment, *, at_start: bool = False
) -> None:
    """Write while the process runs, which is killed at a write: of a new range, or of the newest
    one, whose files a process writes again when it starts.
    """
    async with exports.process() as process:
        if not at_start:
            await process.await_log_line("process.ready")
        exports.gate.trap = Trap(key, moment, process.process.kill)
        await exports.write()
        status = await asyncio.wait_for(process.process.wait(), KILLED_S_MAX)
    assert (status, exports.gate.is_armed) == (-signal.SIGKILL, False), (key, moment)


async def live_through_a_paused_bucket(exports: Exports) -> None:
    """S3 does not answer for a while; the same process goes on."""
    async with exports.process() as process:
        await ready_to_export(exports, process)
        exports.stack.pause("s3")
        await exports.write()
        await asyncio.sleep(OUTAGE_S)
        exports.stack.resume("s3")
        await exports.await_exported()
        assert process.process.returncode is None


async def live_through_a_lost_bucket(exports: Exports) -> None:
    """S3 is dead. The process waits and is killed, the next one waits to start and is killed too;
    the third exports everything when S3 is back.
    """
    async with exports.process() as process:
        await ready_to_export(exports, process)
        exports.stack.kill("s3", restart=False)
        await exports.write()
        await process.await_log_line("host.waits", host="exporter")
        await process.end(signal.SIGKILL)
    await exports.write()
    async with exports.process() as process:
        await process.await_log_line("server.awaited", server="S3")
        await process.end(signal.SIGKILL)
    async with exports.process() as process:
        await process.await_log_line("server.awaited", server="S3")
        await exports.stack.start("s3")
        await exports.await_exported()
        assert await process.end(signal.SIGTERM) == 0


async def ready_to_export(exports: Exports, process: Process) -> None:
    await process.await_log_line("process.ready")
    await exports.await_exported()


async def check_feed(exports: Exports, ledger: Counter[LedgerEntry]) -> None:
    """Usage in webhooks, each event counted once, equals the tenant's ledger."""
    due = await exports.announced()
    assert sum(usage.gpu_ms for usage in due.values()) == sum(
        gpu_ms * count for (tenant, *_, gpu_ms), count in ledger.items() if tenant == FED
    )
    assert {usage.kind for usage in due.values()} == {"usage", "credit"}
