"""Reads of the read models: SQL over the service's pool, or rows of any store (tests)."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from schemas.units import Ms
from services.gateway.timeouts import in_time
from services.gateway.views.ports import Buckets, Cursor, IntRange, ReadModels, Where
from services.gateway.views.table import R, Table
from tunery.platform.store.postgres import PostgresStore, named_errors
from tunery.platform.store.rows import name
from tunery.runtime.store.abstract import Store, StoreUnavailable

QUERY_MS_MAX: Final[Ms] = 2_500
NAME: Final = "views"  # of the projection of journals


class PostgresViews(ReadModels):
    """Implements `Views`. Raises StoreUnavailable within QUERY_MS_MAX."""

    def __init__(self, store: PostgresStore) -> None:
        self._store, self._pool = store, store.pool

    async def behind(self) -> Mapping[str, str | None]:
        return await behind(self._store)

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

    async def sums(
        self,
        table: Table[R],
        where: Where,
        buckets: Buckets,
        *,
        by: Sequence[str],
        of: Sequence[str],
        limit: int,
        after: Sequence[str] = (),
    ) -> Sequence[Mapping[str, Any]]:
        """Up to `limit` records of `bucket`, `by`, `of`, `rows`. Raises StoreUnavailable."""
        condition, arguments = _condition(table, where)
        if after:
            numbers = range(len(arguments) + 1, len(arguments) + len(after) + 1)
            values = ", ".join(f"${number}" for number in numbers)
            condition += f" AND ({', '.join(map(name, by))}) > ({values})"
            arguments += after
        column, width = name(buckets.column), int(buckets.width)
        span = f"{column} >= {int(buckets.first)} AND {column} < {int(buckets.end)}"
        groups = ", ".join((f"{column} / {width} * {width} AS bucket", *map(name, by)))
        totals = ", ".join(
            (*(f"sum({name(total)})::bigint AS {name(total)}" for total in of), "count(*) AS rows")
        )
        columns = ", ".join(map(str, range(1, len(by) + 2)))
        query = (
            f"SELECT {groups}, {totals} FROM {name(table.name)} "  # noqa: S608  # names are checked by `name`
            f"WHERE {condition} AND {span} "
            f"GROUP BY {columns} ORDER BY {columns} LIMIT {int(limit)}"
        )
        return [] if _impossible(arguments) else await self._in_time(query, arguments)

    async def _fetch(self, table: Table[R], query: str, arguments: Sequence[Any]) -> list[R]:
        return _rows(table, await self._in_time(query, arguments))

    async def _in_time(self, query: str, arguments: Sequence[Any]) -> list[dict[str, Any]]:
        try:
            records = await in_time(self._records(query, arguments), QUERY_MS_MAX)
        except TimeoutError as error:
            raise StoreUnavailable(f"PostgreSQL did not answer in {QUERY_MS_MAX} ms") from error
        return [dict(record) for record in records]

    async def _records(self, query: str, arguments: Sequence[Any]) -> Sequence[Any]:
        with named_errors():
            records: Sequence[Any] = await self._pool.fetch(query, *arguments)
        return records


def _rows(table: Table[R], records: Iterable[Mapping[str, Any]]) -> list[R]:
    rows = (table.read(record) for record in records)
    return [row for row in rows if row is not None]


def _condition(table: Table[R], where: Where) -> tuple[str, list[Any]]:
    """SQL that leaves out incomplete rows, so that pages have their full length."""
    parts: list[str] = []
    arguments: list[Any] = []
    for column, value in where.items():
        number = len(arguments) + 1
        match value:
            case tuple():
                parts.append(f"{name(column)} = ANY(${number})")
                arguments.append(list(value))
            case IntRange():
                parts.append(f"{name(column)} >= ${number} AND {name(column)} < ${number + 1}")
                arguments += [value.first, value.end]
            case _:
                parts.append(f"{name(column)} = ${number}")
                arguments.append(value)
    parts.append(f"({', '.join(map(name, table.required))}) IS NOT NULL")
    return " AND ".join(parts), arguments


def _impossible(arguments: Sequence[Any]) -> bool:
    """Return whether a value has a NUL, which PostgreSQL cannot store and would refuse."""
    texts = (
        text for value in arguments for text in (value if isinstance(value, list) else [value])
    )
    return any(isinstance(text, str) and "\0" in text for text in texts)


class StoreViews(ReadModels):
    """Implements `Views` over `Store.rows`: all rows at once, so for small stores only."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def behind(self) -> Mapping[str, str | None]:
        return await behind(self._store)

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
        rows = await self._matching(table, where)
        rows.sort(key=table.position, reverse=descending)
        if after is not None:
            start = (after.order, after.id)
            rows = [row for row in rows if (table.position(row) < start) == descending]
            rows = [row for row in rows if table.position(row) != start]
        return rows[:limit]

    async def sums(
        self,
        table: Table[R],
        where: Where,
        buckets: Buckets,
        *,
        by: Sequence[str],
        of: Sequence[str],
        limit: int,
        after: Sequence[str] = (),
    ) -> Sequence[Mapping[str, Any]]:
        """Up to `limit` records of `bucket`, `by`, `of`, `rows`. Raises StoreUnavailable."""
        totals: dict[tuple[Any, ...], list[int]] = {}
        for row in await self._matching(table, where):
            value = getattr(row, buckets.column)
            if value is not None and buckets.first <= value < buckets.end:
                bucket = value - value % buckets.width
                group = (bucket, *(getattr(row, column) for column in by))
                added = (*(getattr(row, column) for column in of), 1)
                before = totals.get(group, [0] * len(added))
                totals[group] = [sum(pair) for pair in zip(before, added, strict=True)]
        names = ("bucket", *by, *of, "rows")
        return [
            dict(zip(names, (*group, *total), strict=True))
            for group, total in sorted(totals.items())
            if not after or group[1:] > tuple(after)
        ][:limit]

    async def _matching(self, table: Table[R], where: Where) -> list[R]:
        ranges = {key: value for key, value in where.items() if isinstance(value, tuple | IntRange)}
        exact = {key: value for key, value in where.items() if key not in ranges}
        return [
            row
            for row in _rows(table, await self._store.rows(table.name, exact))
            if all(_allows(value, getattr(row, key)) for key, value in ranges.items())
        ]


def _allows(allowed: tuple[Any, ...] | IntRange, value: int) -> bool:
    if isinstance(allowed, IntRange):
        return allowed.first <= value < allowed.end
    return value in allowed


def views_of(store: Store) -> PostgresViews | StoreViews:
    return PostgresViews(store) if isinstance(store, PostgresStore) else StoreViews(store)


async def behind(store: Store) -> Mapping[str, str | None]:
    """Return the partitions of journals that rows were not made of to the end, each with why it has
    stopped; None: it is read. Raises StoreUnavailable.
    """
    positions = await store.positions(NAME)
    if not positions:
        return {NAME: None}
    return {
        f"{stream}/{partition}": saved.stopped
        for (stream, partition), saved in sorted(positions.items())
        if not saved.caught_up
    }
