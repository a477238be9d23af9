import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from examples.first_stream import SEATS, SEATS_AGGREGATE, HoldSeats, Seats
from tests.hosts import running
from tests.unit.tunery.runtime.hosts.toy_service import toy_runtime, until
from tests.virtual_time import on_virtual_time
from tunery.platform.memory_servers import memory_servers
from tunery.platform.ports import Runtime
from tunery.runtime.bus.partitioner import partition_of
from tunery.runtime.hosts import digests
from tunery.runtime.hosts.aggregate import AggregateHost
from tunery.runtime.hosts.digests import Digests
from tunery.runtime.journal.codec import state_hash
from tunery.runtime.store.abstract import StoreUnavailable
from tunery.runtime.store.memory import MemoryStore
from tunery.runtime.tasks import stop_tasks
from tunery.runtime.watchdog import HostWatch

KEY = "a"
PARTITION = partition_of(KEY.encode())


class CountingStore(MemoryStore):
    """Refuses the first `outages` digests, and counts the others."""

    def __init__(self, outages: int = 0) -> None:
        super().__init__()
        self.outages, self.writes = outages, 0

    async def put_digest(self, partition: tuple[str, int], offset: int, state_hash: str) -> None:
        if self.outages:
            self.outages -= 1
            raise StoreUnavailable("PostgreSQL is away")
        self.writes += 1
        await super().put_digest(partition, offset, state_hash)


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digests, "EVERY_MS", 10)


@asynccontextmanager
async def serving(store: CountingStore) -> AsyncIterator[tuple[Runtime, AggregateHost[Seats]]]:
    servers = await memory_servers(streams=(SEATS,))
    runtime = toy_runtime(servers, store)
    owner = AggregateHost(runtime, SEATS_AGGREGATE)
    async with running(owner, Digests(runtime, (owner,))):
        yield runtime, owner


@pytest.mark.parametrize("outages", [0, 3])
@on_virtual_time
async def test_a_quiet_partition_gets_the_hash_of_its_state(outages: int) -> None:
    store = CountingStore(outages)
    async with serving(store) as (runtime, owner):
        await runtime.sender.send("seats", KEY, KEY, HoldSeats(seats=2))

        async def written() -> bool:
            settled = owner.owners[PARTITION].settled
            assert settled is not None
            wanted = (settled.position.offset, state_hash(settled.state))
            return KEY in settled.state and store.digests.get(("seats", PARTITION)) == wanted

        await until(written)


@on_virtual_time
async def test_a_digest_is_written_once_while_nothing_moves() -> None:
    store = CountingStore()
    async with serving(store) as (_, owner):

        async def all_written() -> bool:
            return len(store.digests) == len(owner.owners) > 0

        await until(all_written)
        writes = store.writes
        await asyncio.sleep(0.1)
    assert store.writes == writes == len(store.digests)


@on_virtual_time
async def test_a_host_that_looks_at_quiet_owners_reports_that_it_waits() -> None:
    watch, runtime = HostWatch("digests"), toy_runtime(await memory_servers(), CountingStore())
    task = asyncio.create_task(Digests(runtime, ()).run(), context=watch.context())
    for _ in range(3):
        await asyncio.sleep(0.05)
        assert watch.look(0) == []
    await stop_tasks((task,))
