"""Reads of the read models: SQL over the service's pool, or rows of any store (tests)."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import asyncpg

from schemas.units import Ms
from services.gateway.ports import Cursor, Where
from services.gateway.views.table import R, Table
from services.gateway.web.timeouts import in_time
from tunery.runtime.store.abstract import Store, StoreUnavailable
from tunery.runtime.store.postgres import PostgresStore, named_errors
from tunery.runtime.store.rows import name

QUERY_MS_MAX: Final[Ms] = 2_500


class PostgresViews:
    """Implements `Views`. Raises StoreUnavailable within QUERY_MS_MAX."""

    def __init__(self, pool: "asyncpg.Pool[Any]") -> None:
        self._pool = pool

    async def first(self, table: Table[R], where: Where) -> R | None:
        rows = await self.page(table, where, limit=1, descending=False)
        return rows[0] if rows else None

    async def page(
        self,
        table: Table[R],
        where: Where,
        *,
        limit: int,
        after: Cursor | None = None,
        descending: bool = True,
    ) -> Sequence[R]:
        """Up to `limit` rows by (order column, id). Raises StoreUnavailable."""
        condition, arguments = _condition(table, where)
        order, way, sign = name(table.order), "DESC" if descending else "ASC", "><"[descending]
        if after is not None:
            number = len(arguments)
            condition += f" AND ({order}, id) {sign} (${number + 1}, ${number + 2})"
            arguments += [after.order, after.id]
        query = (
            f"SELECT * FROM {name(table.name)} WHERE {condition} "  # noqa: S608  # names are checked by `name`
            f"ORDER BY {order} {way}, id {way} LIMIT {int(limit)}"
        )
        return [] if _impossible(arguments) else await self._fetch(table, query, arguments)

    async def _fetch(self, table: Table[R], query: str, arguments: Sequence[Any]) -> list[R]:
        try:
            records = await in_time(self._records(query, arguments), QUERY_MS_MAX)
        except TimeoutError as error:
            raise StoreUnavailable(f"PostgreSQL did not answer in {QUERY_MS_MAX} ms") from error
        return _rows(table, map(dict, records))

    async def _records(self, query: str, arguments: Sequence[Any]) -> Sequence[Any]:
        with named_errors():
            records: Sequence[Any] = await self._pool.fetch(query, *arguments)
        return records


def _rows(table: Table[R], records: Iterable[Mapping[str, Any]]) -> list[R]:
    rows = (table.read(record) for record in records)
    return [row for row in rows if row is not None]


def _condition(table: Table[R], where: Where) -> tuple[str, list[Any]]:
    """SQL that leaves out incomplete rows, so that pages have their full length."""
    parts = [f"{name(column)} = ${number}" for number, column in enumerate(where, 1)]
    parts.append(f"({', '.join(map(name, table.required))}) IS NOT NULL")
    return " AND ".join(parts), list(where.values())


def _impossible(arguments: Sequence[Any]) -> bool:
    """Whether a value has a NUL: PostgreSQL cannot store one and would refuse the query."""
    return any(isinstance(value, str) and "\0" in value for value in arguments)


class StoreViews:
    """Implements `Views` over `Store.rows`: all rows at once, so for small stores only."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def first(self, table: Table[R], where: Where) -> R | None:
        rows = await self.page(table, where, limit=1, descending=False)
        return rows[0] if rows else None

    async def page(
        self,
        table: Table[R],
        where: Where,
        *,
        limit: int,
        after: Cursor | None = None,
        descending: bool = True,
    ) -> Sequence[R]:
        """Up to `limit` rows by (order column, id). Raises StoreUnavailable."""
        rows = _rows(table, await self._store.rows(table.name, where))
        rows.sort(key=table.position, reverse=descending)
        if after is not None:
            start = (after.order, after.id)
            rows = [row for row in rows if (table.position(row) < start) == descending]
            rows = [row for row in rows if table.position(row) != start]
        return rows[:limit]


def views_of(store: Store) -> PostgresViews | StoreViews:
    return PostgresViews(store.pool) if isinstance(store, PostgresStore) else StoreViews(store)
