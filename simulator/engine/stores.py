"""SQL store and object storage with faults: lost responses and outages."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

from schemas.units import Ms
from simulator.engine.broker import Broker, TrueClock
from simulator.engine.faulty_port import FaultyPort
from tunery.runtime.blobs.abstract import BlobExists, BlobsUnavailable, Listed, Stored
from tunery.runtime.blobs.memory import MemoryBlobs
from tunery.runtime.store.abstract import (
    CommandResult,
    CommitResult,
    LeasedRow,
    Row,
    RowBatch,
    SavedPosition,
    StoreUnavailable,
    StreamPartition,
    Tables,
)
from tunery.runtime.store.memory import MemoryStore

LATE_MS_MAX: Final[Ms] = 1_500
NOTICE_MS_MAX: Final[Ms] = 20

T = TypeVar("T")


class Database(MemoryStore):
    """One service's store, shared by its processes. What was written outlives an outage."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(TrueClock(broker.clock))
        self.broker = broker
        self.away = False

    def has_work(self) -> bool:
        """There are to-do rows, leased or not."""
        return bool(self._todos)

    def empty(self) -> None:
        """Delete everything, including the schema."""
        self.__init__(self.broker)  # type: ignore[misc]  # anew, for those who hold it already


class FaultyStore:
    """Implements `Store`: `database` through one process's port."""

    def __init__(self, port: FaultyPort, database: Database) -> None:
        self._port, self._database = port, database

    async def _ask(self, question: Callable[[], Awaitable[T]]) -> T:
        await self._reach()
        return await question()

    async def _write(self, change: Callable[[], Awaitable[T]]) -> T:
        """A write that is done, not done, or done after the call has failed."""
        await self._reach()
        broker = self._port.broker
        if broker.chance(broker.faults.store_unanswered):
            broker.tally.add("store unanswered")
            broker.trace(f"{self._port.member} does not know about its write to the store")
            late = broker.rng.random() < 0.5
            broker.later(broker.rng.uniform(0, LATE_MS_MAX) if late else 0, lambda: _alone(change))
            await self._port.pass_through(LATE_MS_MAX)
            raise StoreUnavailable("the connection broke off")
        done = await change()
        await self._port.pass_through()
        return done

    async def _reach(self) -> None:
        await self._port.pass_through()
        self._must_answer()

    def _must_answer(self) -> None:
        if self._database.away:
            raise StoreUnavailable("the database is away")

    # --- Store ------------------------------------------------------------------------------------

    async def ensure(self, tables: Tables) -> bool:
        return await self._write(lambda: self._database.ensure(tables))

    async def rebuild(self, tables: Tables) -> None:
        await self._write(lambda: self._database.rebuild(tables))

    async def positions(self, projection: str) -> Mapping[StreamPartition, SavedPosition]:
        return await self._ask(lambda: self._database.positions(projection))

    async def commit(self, batch: RowBatch) -> CommitResult:
        return await self._write(lambda: self._database.commit(batch))

    async def set_caught_up(
        self, projection: str, partition: StreamPartition, flag: bool, stopped: str | None = None
    ) -> None:
        await self._write(
            lambda: self._database.set_caught_up(projection, partition, flag, stopped)
        )

    async def run_ddl(self, statements: str) -> None:
        await self._write(lambda: self._database.run_ddl(statements))

    async def lease_rows(
        self, kind: str, count: int, row_lease_ms: Ms, of_tenant_max: int | None = None
    ) -> Sequence[LeasedRow]:
        return await self._write(
            lambda: self._database.lease_rows(kind, count, row_lease_ms, of_tenant_max)
        )

    async def renew(self, leased: LeasedRow, row_lease_ms: Ms) -> bool:
        return await self._write(lambda: self._database.renew(leased, row_lease_ms))

    async def release(
        self, leased: LeasedRow, delay_ms: Ms, failure: str | None = None, *, counts: bool = True
    ) -> None:
        await self._write(lambda: self._database.release(leased, delay_ms, failure, counts=counts))

    async def finish(self, leased: LeasedRow) -> None:
        await self._write(lambda: self._database.finish(leased))

    async def command_result(self, command_id: str) -> CommandResult | None:
        return await self._ask(lambda: self._database.command_result(command_id))

    async def put_digest(self, partition: StreamPartition, offset: int, state_hash: str) -> None:
        await self._write(lambda: self._database.put_digest(partition, offset, state_hash))

    async def prune_command_results(self, age_ms: Ms) -> int:
        return await self._write(lambda: self._database.prune_command_results(age_ms))

    @asynccontextmanager
    async def listen(self, channel: str, on_notice: Callable[[str], None]) -> AsyncIterator[None]:
        """Notices arrive after a delay; those sent while the database is down are lost."""
        broker = self._port.broker

        def hear(notice: str) -> None:
            if not self._database.away and self._port.alive:
                broker.later(broker.rng.uniform(0, NOTICE_MS_MAX), lambda: on_notice(notice))

        await self._reach()
        async with self._database.listen(channel, hear):
            yield

    async def rows(self, table: str, where: Row | None = None) -> Sequence[dict[str, Any]]:
        return await self._ask(lambda: self._database.rows(table, where))

    async def close(self) -> None:
        """Nothing to free."""


def _alone(change: Callable[[], Awaitable[Any]]) -> None:
    """Apply a change although no client waits for it; it may be rejected."""

    async def carry_out() -> None:
        await change()

    task = asyncio.get_running_loop().create_task(carry_out())
    task.add_done_callback(lambda done: done.cancelled() or done.exception())


class Storage(MemoryBlobs):
    """Object storage shared by all processes.

    ever: every body that there was.
    existed: how often an object that must be new was there already.
    """

    def __init__(self, now_ms: Callable[[], Ms] = lambda: 0) -> None:
        super().__init__(now_ms)
        self.now_ms, self.away = now_ms, False
        self.existed = 0
        self.ever: dict[str, bytes] = {}


class FaultyBlobs(MemoryBlobs):
    """Implements `Blobs`: `storage` through one process's port."""

    def __init__(self, port: FaultyPort, storage: Storage) -> None:
        super().__init__(storage.now_ms)
        self._port, self._storage = port, storage
        self.bodies, self.stored_at = storage.bodies, storage.stored_at

    async def _reach(self) -> None:
        await self._port.pass_through()
        if self._storage.away:
            raise BlobsUnavailable("object storage is away")

    async def put(self, key: str, data: Any, **options: Any) -> Stored:
        """Store a body for all processes. Raises BlobExists, BlobsUnavailable."""
        await self._reach()
        try:
            stored = await super().put(key, data, **options)
        except BlobExists:
            self._storage.existed += 1
            raise
        self._storage.ever[key] = self.bodies[key]
        await self._port.pass_through()
        return stored

    async def stream(self, key: str, *, sha256: str | None = None) -> AsyncIterator[bytes]:
        await self._reach()
        async for chunk in super().stream(key, sha256=sha256):
            yield chunk

    async def listed(self, prefix: str) -> AsyncIterator[Listed]:
        await self._reach()
        async for each in super().listed(prefix):
            yield each

    async def size(self, key: str) -> int | None:
        await self._reach()
        return await super().size(key)

    async def delete(self, key: str, *, before: Ms | None = None) -> None:
        await self._reach()
        await super().delete(key, before=before)
        await self._port.pass_through()
