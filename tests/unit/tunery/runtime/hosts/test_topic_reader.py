"""A topic is read into rows once, whoever reads it, also when its oldest records are gone."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from schemas.streams import PARTITIONS
from schemas.topics import TELEMETRY
from services.gateway.views.table import Table, TableRow
from tests.virtual_time import on_virtual_time
from tunery.platform.memory_servers import memory_servers
from tunery.platform.ports import Runtime
from tunery.runtime.bus.abstract import Record
from tunery.runtime.hosts.topic_reader import TopicReader, TopicRows
from tunery.runtime.verbs import Upsert

SETTLE_S_MAX = 180


class WordRow(TableRow):
    offset: int


WORDS = Table("words", WordRow, key=("id",), order="offset")


def words_of(record: Record) -> tuple[Upsert, ...]:
    return (WORDS.insert(WordRow(id=record.value.decode(), offset=record.offset)),)


def rows(version: int = 1) -> TopicRows:
    return TopicRows("words", version, TELEMETRY, (WORDS,), words_of, lambda row: row.key["id"])


@asynccontextmanager
async def reading(runtime: Runtime, version: int = 1, counted: Any = None) -> AsyncIterator[None]:
    reader = TopicReader(runtime, rows(version), counted)
    task = asyncio.create_task(reader.run())
    try:
        async with asyncio.timeout(SETTLE_S_MAX):
            await reader.ready()
            yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def until(runtime: Runtime, words: set[str]) -> None:
    while {row["id"] for row in await runtime.store.rows("words")} != words:  # noqa: ASYNC110  # another task writes them
        await asyncio.sleep(0.01)


async def write(runtime: Runtime, *words: str) -> None:
    for word in words:
        await runtime.log.send(TELEMETRY.name, b"key", word.encode(), 3)


@on_virtual_time
async def test_records_become_rows_and_followers_are_woken() -> None:
    runtime = (await memory_servers()).runtime("gateway")
    notices: list[str] = []
    async with runtime.store.listen("words", notices.append), reading(runtime):
        await write(runtime, "a", "b")
        await until(runtime, {"a", "b"})
    assert {"a", "b"} <= {*notices}
    saved = await runtime.store.positions("words")
    assert saved["words", 3].position.offset == 2
    assert len(saved) == PARTITIONS


@on_virtual_time
async def test_records_that_do_not_count_are_passed_over() -> None:
    runtime = (await memory_servers()).runtime("gateway")

    async def counted(records: Sequence[Record]) -> list[Record]:
        return [record for record in records if record.value != b"b"]

    async with reading(runtime, counted=counted):
        await write(runtime, "a", "b", "c")
        await until(runtime, {"a", "c"})
        await write(runtime, "b", "d")
        await until(runtime, {"a", "c", "d"})
    assert (await runtime.store.positions("words"))["words", 3].position.offset == 5


@on_virtual_time
async def test_a_reader_goes_on_where_the_last_one_stopped() -> None:
    runtime = (await memory_servers()).runtime("gateway")
    await write(runtime, "a")
    async with reading(runtime), reading(runtime):  # of two only one commits a batch
        await write(runtime, "b")
        await until(runtime, {"a", "b"})
    await write(runtime, "c")
    async with reading(runtime):
        await until(runtime, {"a", "b", "c"})


@on_virtual_time
async def test_records_that_are_gone_are_passed_over() -> None:
    runtime = (await memory_servers()).runtime("gateway")
    await write(runtime, "a", "b")
    await runtime.log.trim(TELEMETRY.name, 3, 1)
    async with reading(runtime):
        await until(runtime, {"b"})


@pytest.mark.parametrize("version", [1, 2])
@on_virtual_time
async def test_a_new_version_makes_its_rows_anew(version: int) -> None:
    runtime = (await memory_servers()).runtime("gateway")
    await write(runtime, "a")
    async with reading(runtime):
        await until(runtime, {"a"})
    await runtime.log.trim(TELEMETRY.name, 3, 1)
    async with reading(runtime, version):
        await write(runtime, "b")
        await until(runtime, {"b"} if version == 2 else {"a", "b"})
