"""Collects a soak's logs, diaries and rows with plain clients; rebuilds rows from the journals."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import asyncpg
from aiokafka import AIOKafkaConsumer, TopicPartition

from schemas.streams import PARTITIONS
from tests.soak.checker import History, Line, Rows
from tests.soak.history import StreamPartition
from tests.soak.soak_streams import BOARD
from tunery.local.stack import Stack
from tunery.platform.connections import open_runtime
from tunery.platform.kafka_login import PREFIX
from tunery.platform.settings import RuntimeSettings
from tunery.runtime.hosts.projector import Projector

STREAMS: Final = ("requests", "tally")
TABLES: Final = ("needs", "ends", "totals", "todos")
QUIET_S_MAX: Final = 120.0
REBUILD_S_MAX: Final = 120.0
SAME_TIMES: Final = 3
POLL_S: Final = 1.0
OPEN: Final = "SELECT count(*) FROM soak.needs WHERE until < $1"
POSITIONS: Final = "SELECT stream, partition, next_offset FROM soak.positions ORDER BY 1, 2"
SOON_MS: Final = 86_400_000  # needs that end later than that are meant to stay open


def partition_ids() -> list[StreamPartition]:
    return [
        StreamPartition(stream, partition) for stream in STREAMS for partition in range(PARTITIONS)
    ]


def topic(stream: str) -> str:
    return f"tunery.{stream}.journal.v1"


async def await_quiet(running: Stack) -> bool:
    """Wait until all needs have ended and the rows are up to date; False after a time limit."""
    reading = AIOKafkaConsumer(**running.kafka_as().client_options)
    await reading.start()
    database = await asyncpg.connect(running.postgres_dsn)
    try:
        async with asyncio.timeout(QUIET_S_MAX):
            same, last = 0, None
            while same < SAME_TIMES:
                await asyncio.sleep(POLL_S)
                ends = await reading.end_offsets(
                    [
                        TopicPartition(topic(partition_id.stream), partition_id.partition)
                        for partition_id in partition_ids()
                    ]
                )
                now = sorted(
                    (partition.topic, partition.partition, end) for partition, end in ends.items()
                )
                rows = await database.fetch(POSITIONS)
                at = sorted(
                    (topic(row["stream"]), row["partition"], row["next_offset"]) for row in rows
                )
                newest = await database.fetchval("SELECT max(at) FROM soak.command_results") or 0
                is_done = at == now and not await database.fetchval(OPEN, newest + SOON_MS)
                same = same + 1 if is_done and now == last else 0
                last = now
    except TimeoutError:
        return False
    finally:
        await reading.stop()
        await database.close()
    return True


async def history_of(running: Stack, owners: Sequence[Line], client: Sequence[Line]) -> History:
    return History(
        journals=await read_journals(running.kafka_as().client_options),
        client=client,
        owners=owners,
        rows=await read_rows(running.postgres_dsn, "soak"),
        rebuilt=await rebuild(running),
    )


async def read_journals(
    options: Mapping[str, Any],
) -> dict[StreamPartition, list[tuple[int, bytes]]]:
    consumer: Any = AIOKafkaConsumer(**options, enable_auto_commit=False, auto_offset_reset="none")
    await consumer.start()
    journals: dict[StreamPartition, list[tuple[int, bytes]]] = {
        partition_id: [] for partition_id in partition_ids()
    }
    try:
        parts = {
            TopicPartition(topic(partition_id.stream), partition_id.partition): partition_id
            for partition_id in partition_ids()
        }
        consumer.assign(list(parts))
        ends = await consumer.end_offsets(list(parts))
        for part in parts:
            consumer.seek(part, 0)
        while any(len(journals[partition_id]) < ends[part] for part, partition_id in parts.items()):
            for part, records in (await consumer.getmany(timeout_ms=500)).items():
                journals[parts[part]] += [(record.offset, record.value) for record in records]
    finally:
        await consumer.stop()
    return journals


async def read_rows(dsn: str, schema: str) -> Rows:
    connection = await asyncpg.connect(dsn)
    try:
        return {
            table: [dict(row) for row in await connection.fetch(f"TABLE {schema}.{table}")]
            for table in TABLES
        }
    finally:
        await connection.close()


async def rebuild(running: Stack) -> Rows:
    """Run the production projector over the same journals into a new schema."""
    settings = RuntimeSettings.model_validate(
        {name.removeprefix(PREFIX).lower(): value for name, value in running.env.items()}
    )
    async with open_runtime("soak_rebuilt", settings) as runtime:
        projector = Projector(runtime, replace(BOARD, command_results=False))
        following = asyncio.create_task(projector.run())
        try:
            async with asyncio.timeout(REBUILD_S_MAX):
                await projector.ready()
        finally:
            following.cancel()
            await asyncio.wait((following,))
    return await read_rows(running.postgres_dsn, "soak_rebuilt")
