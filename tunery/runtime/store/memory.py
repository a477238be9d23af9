"""The store in memory: for tests and the simulator."""

from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any

import msgspec

from schemas.units import Ms
from tunery.runtime.clock import Clock, SystemClock
from tunery.runtime.journal.reader import START
from tunery.runtime.store.abstract import (
    COMMAND_RESULTS_CHANNEL,
    TODOS_CHANNEL,
    CommandResult,
    CommitResult,
    LeasedRow,
    Row,
    RowBatch,
    SavedPosition,
    StreamPartition,
    Superseded,
    Tables,
)
from tunery.runtime.store.changes import RowGroup, TableChanges, fold
from tunery.runtime.telemetry.trail import Trail
from tunery.runtime.verbs import Todo

_JSON = msgspec.json.Encoder()


@dataclass
class _TodoRow:
    projection: str
    todo: Todo
    body: bytes
    number: int
    tries: int = 0
    due: Ms = 0
    token: str = ""
    failure: str | None = None


class MemoryStore:
    """Implements `Store`. Every method is one step: nothing else runs in between."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock: Clock = clock or SystemClock()
        self._versions: dict[str, int] = {}
        self._positions: dict[str, dict[StreamPartition, SavedPosition]] = {}
        self._tables: dict[str, dict[tuple[Any, ...], dict[str, Any]]] = {}
        self._todos: dict[tuple[str, str], _TodoRow] = {}
        self._command_results: dict[str, tuple[Ms, CommandResult]] = {}
        self._listeners: dict[str, list[Callable[[str], None]]] = {}
        self.digests: dict[StreamPartition, tuple[int, str]] = {}  # offset and hash
        self._count = 0

    async def ensure(self, tables: Tables) -> bool:
        """Raises Superseded."""
        stored_version = self._versions.get(tables.projection)
        if stored_version is not None and stored_version > tables.version:
            raise Superseded(tables.projection, tables.version, stored_version)
        if stored_version != tables.version:
            self._start_again(tables)
            return True
        positions = self._positions[tables.projection]
        for partition in tables.partitions:
            positions.setdefault(partition, SavedPosition())
        return False

    async def rebuild(self, tables: Tables) -> None:
        self._start_again(tables)

    def _start_again(self, tables: Tables) -> None:
        self._versions[tables.projection] = tables.version
        self._positions[tables.projection] = {
            partition: SavedPosition() for partition in tables.partitions
        }
        for table in tables.tables:
            self._tables[table] = {}
        self._todos = {
            key: row for key, row in self._todos.items() if row.projection != tables.projection
        }

    async def positions(self, projection: str) -> Mapping[StreamPartition, SavedPosition]:
        return dict(self._positions.get(projection, {}))

    async def commit(self, batch: RowBatch) -> CommitResult:
        """Raises Superseded."""
        stored_version = self._versions[batch.projection]
        if stored_version != batch.version:
            raise Superseded(batch.projection, batch.version, stored_version)
        positions = self._positions[batch.projection]
        saved = positions.get(batch.partition, SavedPosition(START))
        if saved.position.offset != batch.expected:
            return CommitResult.STALE
        plan = fold(batch.changes)
        self._apply(batch.projection, plan)
        positions[batch.partition] = replace(saved, position=batch.position)
        now = self._clock.now_ms()
        for result in batch.command_results:
            self._command_results.setdefault(result.command_id, (now, result))
            self._notify(COMMAND_RESULTS_CHANNEL, result.command_id)
        for kind in sorted({todo.kind for todo in plan.todos}):
            self._notify(TODOS_CHANNEL, kind)
        for notice in batch.notices:
            self._notify(batch.projection, notice)
        return CommitResult.DONE

    def _apply(self, projection: str, plan: TableChanges) -> None:
        for group in plan.deletes:
            table = self._tables.setdefault(group.table, {})
            for row in group.rows:
                if len(next(iter(table), ())) <= len(group.key):
                    table.pop(_key(group, row), None)
                    continue
                for key in [key for key, kept in table.items() if row.items() <= kept.items()]:
                    del table[key]
        for group in plan.upserts:
            table = self._tables.setdefault(group.table, {})
            for row in group.rows:
                table.setdefault(_key(group, row), {}).update(_to_json_values(row))
        for done in plan.done:
            self._todos.pop((done.kind, done.id), None)
        for todo in plan.todos:
            self._count += 1
            body = _JSON.encode(todo.body)
            self._todos[todo.kind, todo.id] = _TodoRow(projection, todo, body, self._count)

    async def set_caught_up(
        self, projection: str, partition: StreamPartition, flag: bool, stopped: str | None = None
    ) -> None:
        positions = self._positions[projection]
        saved = positions.get(partition, SavedPosition())
        positions[partition] = replace(saved, caught_up=flag, stopped=stopped)

    async def lease_rows(
        self, kind: str, count: int, row_lease_ms: Ms, of_tenant_max: int | None = None
    ) -> Sequence[LeasedRow]:
        """A row's turn: how many rows its tenant has leased, plus its position among the due."""
        now = self._clock.monotonic_ms()
        caught_up = {
            projection
            for projection, positions in self._positions.items()
            if all(saved.caught_up for saved in positions.values())
        }
        rows = [row for row in self._todos.values() if row.todo.kind == kind]
        due = [row for row in rows if row.due <= now and row.projection in caught_up]
        due.sort(key=lambda row: (row.due, row.number))
        turn = Counter(row.todo.tenant for row in rows if row.token and row.due > now)
        turns: list[tuple[int, _TodoRow]] = []
        for row in due:
            turn[row.todo.tenant] += 1
            if of_tenant_max is None or turn[row.todo.tenant] <= of_tenant_max:
                turns.append((turn[row.todo.tenant], row))
        turns.sort(key=itemgetter(0))
        return [self._lease(row, now + row_lease_ms) for _, row in turns[:count]]

    def _lease(self, row: _TodoRow, until: Ms) -> LeasedRow:
        self._count += 1
        row.tries, row.due, row.token = row.tries + 1, until, str(self._count)
        todo = row.todo
        return LeasedRow(
            kind=todo.kind,
            id=todo.id,
            key=todo.key,
            tenant=todo.tenant,
            try_number=row.tries,
            token=row.token,
            body=row.body,
            failure=row.failure,
            trail=Trail(todo.correlation, todo.traceparent),
        )

    def _leased(self, leased: LeasedRow) -> _TodoRow | None:
        """The row, unless its lease was lost meanwhile."""
        row = self._todos.get((leased.kind, leased.id))
        return row if row is not None and row.token == leased.token else None

    async def renew(self, row: LeasedRow, row_lease_ms: Ms) -> bool:
        leased = self._leased(row)
        if leased is not None:
            leased.due = self._clock.monotonic_ms() + row_lease_ms
        return leased is not None

    async def release(
        self, row: LeasedRow, delay_ms: Ms, failure: str | None = None, *, counts: bool = True
    ) -> None:
        leased = self._leased(row)
        if leased is not None:
            leased.due, leased.token = self._clock.monotonic_ms() + delay_ms, ""
            leased.failure = failure or leased.failure
            leased.tries -= 0 if counts else 1

    async def finish(self, row: LeasedRow) -> None:
        if self._leased(row) is not None:
            del self._todos[row.kind, row.id]

    async def command_result(self, command_id: str) -> CommandResult | None:
        written = self._command_results.get(command_id)
        return written[1] if written else None

    async def prune_command_results(self, age_ms: Ms) -> int:
        before = self._clock.now_ms() - age_ms
        old = [command_id for command_id, (at, _) in self._command_results.items() if at < before]
        for command_id in old:
            del self._command_results[command_id]
        return len(old)

    async def put_digest(self, partition: StreamPartition, offset: int, state_hash: str) -> None:
        self.digests[partition] = (offset, state_hash)

    @asynccontextmanager
    async def listen(self, channel: str, on_notice: Callable[[str], None]) -> AsyncIterator[None]:
        listeners = self._listeners.setdefault(channel, [])
        listeners.append(on_notice)
        try:
            yield
        finally:
            listeners.remove(on_notice)

    def _notify(self, channel: str, notice: str) -> None:
        for on_notice in tuple(self._listeners.get(channel, ())):
            on_notice(notice)

    async def run_ddl(self, statements: str) -> None:
        """Nothing here is SQL."""

    async def rows(self, table: str, where: Row | None = None) -> Sequence[dict[str, Any]]:
        conditions = (where or {}).items()
        return [
            dict(row) for row in self._tables.get(table, {}).values() if conditions <= row.items()
        ]

    async def close(self) -> None:
        """Nothing to free."""


def _to_json_values(row: Mapping[str, Any]) -> dict[str, Any]:
    """Convert structs to plain JSON values, as a jsonb column does."""
    return {
        name: msgspec.to_builtins(value)
        if isinstance(value, msgspec.Struct | dict | list | tuple)
        else value
        for name, value in row.items()
    }


def _key(group: RowGroup, row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in group.key)
