"""Reads of the read models: SQL over the service's pool, or rows of any store (tests)."""

from collections.abc import Sequence
from typing import Any, Final

import asyncpg

from schemas.units import Ms
from services.gateway.ports import Cursor, Row
from services.gateway.views.tables import Table
from services.gateway.web.timeouts import in_time
from tunery.runtime.store.abstract import Store, StoreUnavailable
from tunery.runtime.store.postgres import PostgresStore, named_errors
from tunery.runtime.store.rows import name

QUERY_MS_MAX: Final[Ms] = 2_500


class PostgresViews:
    """Implements `Views`. Raises StoreUnavailable within QUERY_MS_MAX."""

    def __init__(self, pool: "asyncpg.Pool[Any]") -> None:
        self._pool = pool

    async def one(self, table: Table, where: Row) -> Row | None:
        found = await self.page(table, where, limit=1, descending=False)
        return found[0] if found else None

    async def page(
        self,
        table: Table,
        where: Row,
        *,
        limit: int,
        after: Cursor | None = None,
        descending: bool = True,
    ) -> Sequence[Row]:
        condition, arguments = _condition(where)
        order, way, sign = name(table.order), "DESC" if descending else "ASC", "><"[descending]
        if after is not None:
            place = len(arguments)
            condition += f" AND ({order}, id) {sign} (${place + 1}, ${place + 2})"
            arguments += [after.order, after.id]
        query = (
            f"SELECT * FROM {name(table.name)} WHERE {condition} "  # noqa: S608  # names are checked by `name`
            f"ORDER BY {order} {way}, id {way} LIMIT {int(limit)}"
        )
        return [] if _impossible(arguments) else await self._fetch(query, arguments)

    async def _fetch(self, query: str, arguments: Sequence[Any]) -> list[dict[str, Any]]:
        try:
            found = await in_time(self._rows(query, arguments), QUERY_MS_MAX)
        except TimeoutError as error:
            raise StoreUnavailable(f"PostgreSQL did not answer in {QUERY_MS_MAX} ms") from error
        return [dict(row) for row in found]

    async def _rows(self, query: str, arguments: Sequence[Any]) -> Sequence[Any]:
        with named_errors():
            found: Sequence[Any] = await self._pool.fetch(query, *arguments)
        return found


def _condition(where: Row) -> tuple[str, list[Any]]:
    parts = [f"{name(column)} = ${number}" for number, column in enumerate(where, 1)]
    return " AND ".join(parts) or "true", list(where.values())


def _impossible(arguments: Sequence[Any]) -> bool:
    """PostgreSQL has no place for NUL, so no row has it; and it does not take the question."""
    return any(isinstance(value, str) and "\0" in value for value in arguments)


class Sparse(dict[str, Any]):
    """A row of a store that keeps only what was set: the other columns are null."""

    def __missing__(self, key: str) -> None:
        return None


class StoreViews:
    """Implements `Views` over `Store.rows`: all rows at once, so for small stores only."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def one(self, table: Table, where: Row) -> Row | None:
        found = await self.page(table, where, limit=1, descending=False)
        return found[0] if found else None

    async def page(
        self,
        table: Table,
        where: Row,
        *,
        limit: int,
        after: Cursor | None = None,
        descending: bool = True,
    ) -> Sequence[Row]:
        rows = [Sparse(row) for row in await self._store.rows(table.name, where)]
        rows.sort(key=lambda row: (row[table.order], row["id"] or ""), reverse=descending)
        if after is not None:
            place = (after.order, after.id)
            rows = [
                row
                for row in rows
                if (row[table.order], row["id"]) != place
                and ((row[table.order], row["id"]) < place) == descending
            ]
        return rows[:limit]


def views_of(store: Store) -> PostgresViews | StoreViews:
    return PostgresViews(store.pool) if isinstance(store, PostgresStore) else StoreViews(store)
