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
    OUTCOMES_CHANNEL,
    TODOS_CHANNEL,
    Batch,
    Committed,
    Leased,
    Outcome,
    Place,
    Row,
    Saved,
    Superseded,
    Tables,
)
from tunery.runtime.store.changes import Group, Plan, fold
from tunery.runtime.verbs import Todo

_JSON = msgspec.json.Encoder()


@dataclass
class _Todo:
    projection: str
    todo: Todo
    body: bytes
    number: int
    attempts: int = 0
    due: Ms = 0
    token: str = ""
    failure: str | None = None


class MemoryStore:
    """Implements `Store`. Every method is one step: nothing else runs in between."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock: Clock = clock or SystemClock()
        self._versions: dict[str, int] = {}
        self._positions: dict[str, dict[Place, Saved]] = {}
        self._tables: dict[str, dict[tuple[Any, ...], dict[str, Any]]] = {}
        self._todos: dict[tuple[str, str], _Todo] = {}
        self._outcomes: dict[str, tuple[Ms, Outcome]] = {}
        self._listeners: dict[str, list[Callable[[str], None]]] = {}
        self._count = 0

    @property
    def pool(self) -> Any:
        raise NotImplementedError("the store in memory speaks no SQL; use `rows`")

    async def ensure(self, tables: Tables) -> bool:
        found = self._versions.get(tables.projection)
        if found is not None and found > tables.version:
            raise Superseded(tables.projection, tables.version, found)
        if found != tables.version:
            self._start_again(tables)
            return True
        places = self._positions[tables.projection]
        for place in tables.places:
            places.setdefault(place, Saved())
        return False

    async def rebuild(self, tables: Tables) -> None:
        self._start_again(tables)

    def _start_again(self, tables: Tables) -> None:
        self._versions[tables.projection] = tables.version
        self._positions[tables.projection] = {place: Saved() for place in tables.places}
        for table in tables.tables:
            self._tables[table] = {}
        self._todos = {
            place: row for place, row in self._todos.items() if row.projection != tables.projection
        }

    async def positions(self, projection: str) -> Mapping[Place, Saved]:
        return dict(self._positions.get(projection, {}))

    async def commit(self, batch: Batch) -> Committed:
        found = self._versions[batch.projection]
        if found != batch.version:
            raise Superseded(batch.projection, batch.version, found)
        places = self._positions[batch.projection]
        saved = places.get(batch.place, Saved(START))
        if saved.position.offset != batch.expected:
            return Committed.STALE
        plan = fold(batch.changes)
        self._apply(batch.projection, plan)
        places[batch.place] = replace(saved, position=batch.position)
        now = self._clock.now_ms()
        for outcome in batch.outcomes:
            self._outcomes.setdefault(outcome.command_id, (now, outcome))
            self._notify(OUTCOMES_CHANNEL, outcome.command_id)
        for kind in sorted({todo.kind for todo in plan.todos}):
            self._notify(TODOS_CHANNEL, kind)
        for notice in batch.notices:
            self._notify(batch.projection, notice)
        return Committed.DONE

    def _apply(self, projection: str, plan: Plan) -> None:
        for group in plan.deletes:
            table = self._tables.setdefault(group.table, {})
            for row in group.rows:
                table.pop(_key(group, row), None)
        for group in plan.upserts:
            table = self._tables.setdefault(group.table, {})
            for row in group.rows:
                table.setdefault(_key(group, row), {}).update(_stored(row))
        for done in plan.done:
            self._todos.pop((done.kind, done.id), None)
        for todo in plan.todos:
            self._count += 1
            body = _JSON.encode(todo.body)
            self._todos[todo.kind, todo.id] = _Todo(projection, todo, body, self._count)

    async def set_caught_up(self, projection: str, place: Place, flag: bool) -> None:
        places = self._positions[projection]
        places[place] = replace(places.get(place, Saved()), caught_up=flag)

    async def lease(self, kind: str, count: int, lease_ms: Ms) -> Sequence[Leased]:
        now = self._clock.monotonic_ms()
        ready = {
            projection
            for projection, places in self._positions.items()
            if all(saved.caught_up for saved in places.values())
        }
        rows = [row for row in self._todos.values() if row.todo.kind == kind]
        due = [row for row in rows if row.due <= now and row.projection in ready]
        due.sort(key=lambda row: (row.due, row.number))
        turn = Counter(row.todo.tenant for row in rows if row.token and row.due > now)
        turns: list[tuple[int, _Todo]] = []
        for row in due:
            turn[row.todo.tenant] += 1
            turns.append((turn[row.todo.tenant], row))
        turns.sort(key=itemgetter(0))
        return [self._lease(row, now + lease_ms) for _, row in turns[:count]]

    def _lease(self, row: _Todo, until: Ms) -> Leased:
        self._count += 1
        row.attempts, row.due, row.token = row.attempts + 1, until, str(self._count)
        todo = row.todo
        return Leased(
            todo.kind,
            todo.id,
            todo.key,
            todo.tenant,
            row.attempts,
            row.token,
            row.body,
            row.failure,
        )

    def _held(self, leased: Leased) -> _Todo | None:
        row = self._todos.get((leased.kind, leased.id))
        return row if row is not None and row.token == leased.token else None

    async def renew(self, leased: Leased, lease_ms: Ms) -> bool:
        row = self._held(leased)
        if row is not None:
            row.due = self._clock.monotonic_ms() + lease_ms
        return row is not None

    async def release(
        self, leased: Leased, delay_ms: Ms, failure: str | None = None, *, counts: bool = True
    ) -> None:
        row = self._held(leased)
        if row is not None:
            row.due, row.token = self._clock.monotonic_ms() + delay_ms, ""
            row.failure = failure or row.failure
            row.attempts -= 0 if counts else 1

    async def finish(self, leased: Leased) -> None:
        if self._held(leased) is not None:
            del self._todos[leased.kind, leased.id]

    async def outcome(self, command_id: str) -> Outcome | None:
        found = self._outcomes.get(command_id)
        return found[1] if found else None

    async def prune_outcomes(self, age_ms: Ms) -> int:
        before = self._clock.now_ms() - age_ms
        old = [command_id for command_id, (at, _) in self._outcomes.items() if at < before]
        for command_id in old:
            del self._outcomes[command_id]
        return len(old)

    @asynccontextmanager
    async def listen(self, channel: str, heard: Callable[[str], None]) -> AsyncIterator[None]:
        listeners = self._listeners.setdefault(channel, [])
        listeners.append(heard)
        try:
            yield
        finally:
            listeners.remove(heard)

    def _notify(self, channel: str, notice: str) -> None:
        for heard in tuple(self._listeners.get(channel, ())):
            heard(notice)

    async def rows(self, table: str, where: Row | None = None) -> Sequence[dict[str, Any]]:
        found = self._tables.get(table, {}).values()
        return [
            dict(row) for row in found if all(row.get(c) == v for c, v in (where or {}).items())
        ]

    async def close(self) -> None:
        """Nothing to free."""


def _stored(row: Mapping[str, Any]) -> dict[str, Any]:
    """Structs come back as plain JSON values, as they do from a jsonb column."""
    return {
        name: msgspec.to_builtins(value)
        if isinstance(value, msgspec.Struct | dict | list | tuple)
        else value
        for name, value in row.items()
    }


def _key(group: Group, row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in group.key)
