"""The simulated database and object storage: outages, and writes whose answer is lost."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from simulator.engine.broker import Broker
from simulator.engine.faults import Faults, FaultTally
from simulator.engine.faulty_port import FaultyPort
from simulator.engine.stores import LATE_MS_MAX, Database, FaultyBlobs, FaultyStore, Storage
from simulator.engine.virtual_loop import run_virtual
from tunery.runtime.blobs.abstract import BlobExists, BlobMissing, BlobsUnavailable
from tunery.runtime.store.abstract import StoreUnavailable

PARTITION = ("job", 3)


class Servers:
    """One process's view of a database and of object storage."""

    def __init__(self, seed: int = 1, **faults: Any) -> None:
        self.broker = Broker(Random(seed), Faults(**faults), FaultTally(), {})
        self.port = FaultyPort(self.broker, "p1", Random(seed))
        self.database, self.storage = Database(self.broker), Storage()
        self.store = FaultyStore(self.port, self.database)
        self.blobs = FaultyBlobs(self.port, self.storage)


def play(scene: Callable[[], Coroutine[Any, Any, None]]) -> None:
    run_virtual(scene())


def test_what_is_written_through_a_port_is_in_the_database() -> None:
    async def scene() -> None:
        servers = Servers()
        await servers.store.put_digest(PARTITION, 7, "hash")
        assert servers.database.digests == {PARTITION: (7, "hash")}
        assert await servers.store.command_result("c1") is None
        assert await servers.store.rows("holds") == []
        assert not servers.database.has_work()

    play(scene)


def test_a_write_without_an_answer_is_done_at_once_or_late_or_counts_as_both() -> None:
    """Whoever asks cannot tell: it fails, and the change comes sooner or later."""
    at_once = 0
    for seed in range(20):

        async def scene(seed: int = seed) -> None:
            nonlocal at_once
            servers = Servers(seed, store_unanswered=100)
            with pytest.raises(StoreUnavailable, match="broke off"):
                await servers.store.put_digest(PARTITION, 7, "hash")
            at_once += servers.database.digests != {}
            await asyncio.sleep(LATE_MS_MAX / 1_000)
            assert servers.database.digests == {PARTITION: (7, "hash")}
            assert servers.broker.tally.counts == {"store unanswered": 1}
            assert await servers.store.positions("jobs") == {}  # questions are answered

        play(scene)
    assert 0 < at_once < 20


def test_a_database_answers_no_query_during_an_outage_and_keeps_its_rows() -> None:
    async def scene() -> None:
        servers = Servers()
        await servers.store.put_digest(PARTITION, 7, "hash")
        servers.database.away = True
        with pytest.raises(StoreUnavailable, match="away"):
            await servers.store.put_digest(PARTITION, 8, "other")
        with pytest.raises(StoreUnavailable):
            await servers.store.rows("holds")
        with pytest.raises(StoreUnavailable):
            async with servers.store.listen("results", lambda _: None):
                pass
        servers.database.away = False
        assert servers.database.digests == {PARTITION: (7, "hash")}
        servers.database.empty()
        assert servers.database.digests == {}

    play(scene)


def test_notices_come_after_a_while_and_those_of_an_outage_or_to_the_dead_are_lost() -> None:
    async def scene() -> None:
        servers, notices = Servers(), list[str]()
        async with servers.store.listen("results", notices.append):
            servers.database._notify("results", "first")
            assert notices == []
            await asyncio.sleep(0.1)
            servers.database.away = True
            servers.database._notify("results", "second")
            servers.database.away = False
            servers.port.alive = False
            servers.database._notify("results", "third")
            await asyncio.sleep(0.1)
            servers.port.alive = True
        servers.database._notify("results", "fourth")
        await asyncio.sleep(0.1)
        assert notices == ["first"]

    play(scene)


def test_a_blob_is_seen_by_all_processes_and_remembered_after_it_was_deleted() -> None:
    async def scene() -> None:
        servers = Servers()
        other = FaultyBlobs(FaultyPort(servers.broker, "p2", Random(2)), servers.storage)
        stored = await servers.blobs.put("a/b", b"body")
        assert (stored.key, stored.bytes) == ("a/b", 4)
        assert await other.get("a/b", sha256=stored.sha256) == b"body"
        assert await other.size("a/b") == 4
        await other.delete("a/b")
        assert not await servers.blobs.exists("a/b")
        with pytest.raises(BlobMissing):
            await servers.blobs.get("a/b")
        assert servers.storage.ever == {"a/b": b"body"}

    play(scene)


def test_storage_counts_how_often_a_new_object_was_there_already() -> None:
    async def scene() -> None:
        servers = Servers()
        for existed in (0, 1, 2):
            with suppress(BlobExists):
                await servers.blobs.put("a", b"1", if_absent=True)
            assert servers.storage.existed == existed
        await servers.blobs.put("a", b"2")
        assert servers.storage.existed == 2

    play(scene)


def test_object_storage_that_is_away_refuses_every_question() -> None:
    async def scene() -> None:
        servers = Servers()
        await servers.blobs.put("a", b"1")
        servers.storage.away = True
        blobs = servers.blobs
        for ask in (blobs.get, blobs.size, blobs.exists, blobs.delete):
            with pytest.raises(BlobsUnavailable):
                await ask("a")
        with pytest.raises(BlobsUnavailable):
            await blobs.put("b", b"2")
        assert servers.storage.bodies == {"a": b"1"}

    play(scene)
