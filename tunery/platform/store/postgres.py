"""The store in PostgreSQL: one schema for each service, one transaction for each batch."""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar
from uuid import uuid4

import asyncpg
import msgspec

from schemas.envelope import Reason
from schemas.units import Ms
from tunery.platform.store import generations
from tunery.platform.store import rows as encoding
from tunery.platform.store import statements as sql
from tunery.platform.store.listening import listen
from tunery.runtime.batching import Batcher
from tunery.runtime.journal.reader import START, load_position
from tunery.runtime.store.abstract import (
    COMMAND_RESULTS_CHANNEL,
    FAILURE_CHARACTERS_MAX,
    TODOS_CHANNEL,
    BadChange,
    CommandResult,
    CommitResult,
    LeasedRow,
    Row,
    RowBatch,
    SavedPosition,
    Store,
    StoreUnavailable,
    StreamPartition,
    Superseded,
    Tables,
)
from tunery.runtime.store.changes import TableChanges, fold
from tunery.runtime.telemetry.trail import Trail

CONNECT_MS_MAX: Final = 3_000
COMMAND_MS_MAX: Final = 30_000
ACQUIRE_MS_MAX: Final = 10_000  # for a free connection of the pool
RELEASE_MS_MAX: Final = 2_000  # for the server to confirm a cancelled statement
DEADLOCK_RETRIES_MAX: Final = 5
QUERIES_MAX: Final = 50_000  # of one connection; asyncpg's own default
IDLE_S_MAX: Final = 300.0  # of a connection; asyncpg's own default
CONTESTED_ROWS_MAX: Final = 16  # rows of a tenant that other processes lease at this moment
RELEASES_MAX: Final = 500  # rows that one statement gives back
OLDEST_ROWS_MAX: Final = 500  # of a kind, in which the first rows of tenants are searched
T = TypeVar("T")
_Step: TypeAlias = tuple[str, Sequence[Row]]  # a statement, and the rows it takes as `$1`
Connection: TypeAlias = Any  # asyncpg's pool hands out a proxy that its stubs do not unite
_JSON: Final = msgspec.json.Encoder()

#: what says that the server is away or going, not that we asked for something wrong
AWAY: Final = (
    OSError,
    TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.InternalClientError,  # of a connection that was cut off in the middle of a statement
)
TRY_AGAIN: Final = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)


@contextmanager
def named_errors() -> Iterator[None]:
    """asyncpg's errors become ours."""
    try:
        yield
    except (*AWAY, asyncpg.PostgresError) as error:
        ours = isinstance(error, asyncpg.InterfaceError) and isinstance(error, ValueError)
        if isinstance(error, AWAY) and not ours:
            why = str(error) or type(error).__name__
            raise StoreUnavailable(f"PostgreSQL cannot be used: {why}") from error
        raise BadChange(f"PostgreSQL refused: {error}") from error


if TYPE_CHECKING:
    _Pool: TypeAlias = asyncpg.Pool[Any]
else:
    _Pool = asyncpg.Pool  # generic in its stubs alone


class BoundedPool(_Pool):
    """asyncpg's pool, with limits where it has none: it would wait for ever.

    A connection comes back when the server has confirmed that a cancelled statement is over. A
    server that hangs never does; after the limit the connection is thrown away.
    """

    def acquire(self, *, timeout: float | None = None) -> Any:
        return super().acquire(timeout=timeout or ACQUIRE_MS_MAX / 1_000)

    async def release(self, connection: Any, *, timeout: float | None = None) -> None:
        await super().release(connection, timeout=timeout or RELEASE_MS_MAX / 1_000)


async def open_store(dsn: str, schema: str, connections_max: int) -> "PostgresStore":
    """Connect, and make the schema and the runtime's tables. Raises StoreUnavailable."""
    store = await connect_store(dsn, schema, connections_max)
    try:
        with named_errors():
            async with store.pool.acquire() as connection, connection.transaction():
                await _one_at_a_time(connection, schema)
                # A role of its own may not create schemas, even one that exists.
                if not await connection.fetchval("SELECT to_regnamespace($1) IS NOT NULL", schema):
                    await connection.execute(f"CREATE SCHEMA {encoding.name(schema)}")
                await connection.execute(sql.TABLES)
                await connection.execute(sql.COMMIT_FUNCTION)
    except BadChange as error:
        store.pool.terminate()
        if isinstance(error.__cause__, asyncpg.InsufficientPrivilegeError):
            raise StoreUnavailable(
                f"the schema {schema} is missing or of another role ({error.__cause__}): "
                "an operator runs what `tunery postgres sql` prints"
            ) from error
        raise
    except BaseException:
        store.pool.terminate()
        raise
    return store


async def connect_store(dsn: str, schema: str, connections_max: int) -> "PostgresStore":
    """Connect to a schema as it is. Raises StoreUnavailable."""
    encoding.name(schema)
    with named_errors():
        pool = await BoundedPool(
            dsn,
            connection_class=asyncpg.Connection,
            record_class=asyncpg.Record,
            max_queries=QUERIES_MAX,
            max_inactive_connection_lifetime=IDLE_S_MAX,
            setup=None,
            loop=None,
            min_size=1,
            max_size=connections_max,
            timeout=CONNECT_MS_MAX / 1_000,
            command_timeout=COMMAND_MS_MAX / 1_000,
            statement_cache_size=500,
            init=_json_codecs,
            reset=_skip_reset,
            server_settings={
                "search_path": schema,
                "application_name": generations.application_of(schema),
                # All of it follows from the log: what a crash of PostgreSQL loses, rows and
                # positions together, is read again. Waiting for its disk would be for nothing.
                "synchronous_commit": "off",
            },
        )
    return PostgresStore(pool, dsn, schema)


async def _json_codecs(connection: Connection) -> None:
    """jsonb columns and parameters are Python values, in the queries of services too."""
    await connection.set_type_codec(
        "jsonb", schema="pg_catalog", encoder=_dump, decoder=msgspec.json.decode
    )


async def _skip_reset(_: Connection) -> None:
    """Skip asyncpg's RESET on release, a round trip: our queries leave no session state."""


def _dump(value: Any) -> str:
    return _JSON.encode(value).decode("utf-8")


async def _one_at_a_time(connection: Connection, schema: str) -> None:
    """Processes that start together make their tables one after the other."""
    await connection.execute(
        "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", f"tunery/{schema}"
    )


class PostgresStore:
    """Implements `Store`."""

    def __init__(self, pool: "asyncpg.Pool[Any]", dsn: str, schema: str) -> None:
        self._pool = pool
        self.schema = schema
        self._dsn = dsn
        self._needed: dict[str, frozenset[str]] = {}  # columns that an insert must have, by table
        self._releases = Batcher(self._release, RELEASES_MAX)

    @property
    def pool(self) -> "asyncpg.Pool[Any]":
        """Connections with the service's schema as search path; jsonb is Python values."""
        return self._pool

    async def _in_transaction(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """`work` in one transaction."""

        async def within(connection: Connection) -> T:
            async with connection.transaction():
                return await work(connection)

        return await self._retry_after_deadlock(within)

    async def _retry_after_deadlock(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """`work` once more after a deadlock, which PostgreSQL has undone."""
        for retry in range(DEADLOCK_RETRIES_MAX + 1):
            with named_errors():
                try:
                    async with self._pool.acquire() as connection:
                        return await work(connection)
                except TRY_AGAIN:
                    if retry == DEADLOCK_RETRIES_MAX:
                        raise
        raise AssertionError("the last retry raises")

    async def _run(self, query: str, *arguments: Any) -> int:
        """One statement of its own; the number of rows it touched."""
        with named_errors():
            return touched_rows(await self._pool.execute(query, *arguments))

    async def ensure(self, tables: Tables) -> bool:
        is_fresh = await self._in_transaction(partial(self._ensure, tables))
        with named_errors():
            columns = await self._pool.fetch(sql.NEEDED_COLUMNS, tables.tables)
        self._needed |= {row["table"]: frozenset(row["columns"]) for row in columns}
        return is_fresh

    async def _ensure(self, tables: Tables, connection: Connection) -> bool:
        await _one_at_a_time(connection, self.schema)
        stored_version = await connection.fetchval(
            "SELECT version FROM projections WHERE name = $1", tables.projection
        )
        if stored_version is not None and stored_version > tables.version:
            raise Superseded(tables.projection, tables.version, stored_version)
        fresh = bool(stored_version != tables.version)
        if fresh:
            await self._drop(tables, connection)
        if tables.ddl:
            await connection.execute(tables.ddl)
        adopted = fresh and await generations.adopt(connection, self.schema, tables)
        await self._zero(tables, connection)
        return fresh and not adopted

    async def rebuild(self, tables: Tables) -> None:
        await self._in_transaction(partial(self._rebuild, tables))

    async def _rebuild(self, tables: Tables, connection: Connection) -> None:
        await _one_at_a_time(connection, self.schema)
        await self._drop(tables, connection)
        if tables.ddl:
            await connection.execute(tables.ddl)
        await self._zero(tables, connection)

    async def _drop(self, tables: Tables, connection: Connection) -> None:
        """Tables go as a whole: a new version may have other columns."""
        for table in tables.tables:
            await connection.execute(f"DROP TABLE IF EXISTS {encoding.name(table)} CASCADE")
        await connection.execute("DELETE FROM todos WHERE projection = $1", tables.projection)
        await connection.execute("DELETE FROM positions WHERE projection = $1", tables.projection)
        await connection.execute(
            "INSERT INTO projections (name, version) VALUES ($1, $2) "
            "ON CONFLICT (name) DO UPDATE SET version = excluded.version",
            tables.projection,
            tables.version,
        )

    async def _zero(self, tables: Tables, connection: Connection) -> None:
        streams = [stream for stream, _ in tables.partitions]
        partitions = [partition for _, partition in tables.partitions]
        await connection.execute(sql.ZERO, tables.projection, streams, partitions, START.dump())

    async def positions(self, projection: str) -> Mapping[StreamPartition, SavedPosition]:
        """Return the position of every partition that `ensure` was given for this projection."""
        with named_errors():
            rows = await self._pool.fetch(
                "SELECT stream, partition, position, caught_up, stopped FROM positions "
                "WHERE projection = $1",
                projection,
            )
        return {
            (row["stream"], row["partition"]): SavedPosition(
                load_position(row["position"]), row["caught_up"], row["stopped"]
            )
            for row in rows
        }

    async def commit(self, batch: RowBatch) -> CommitResult:
        """One round trip: a function of the database compares the position and runs the rest."""
        steps = self._steps(batch, fold(batch.changes))
        moved = await self._retry_after_deadlock(
            lambda connection: connection.fetchval(
                sql.COMMIT,
                batch.projection,
                batch.version,
                *batch.partition,
                batch.expected,
                batch.position.offset,
                batch.position.dump(),
                [statement for statement, _ in steps],
                [encoding.encode(rows) for _, rows in steps],
            )
        )
        return (
            CommitResult.DONE
            if moved
            else await self._in_transaction(partial(self._why_stale, batch))
        )

    def _steps(self, batch: RowBatch, plan: TableChanges) -> list[_Step]:
        """Return the statements of a batch, except the one that moves its position."""
        steps: list[_Step] = [
            (encoding.delete_sql(group.table, group.key), group.rows) for group in plan.deletes
        ]
        for group in plan.upserts:
            needed = self._needed.get(group.table)
            insertable = needed is not None and needed.issubset(group.key + group.columns)
            query = encoding.upsert_sql(
                group.table, group.key, group.columns, insertable=insertable
            )
            steps.append((query, group.rows))
        done = [{"kind": done.kind, "id": done.id} for done in plan.done]
        todos = [
            {
                "projection": batch.projection,
                "kind": todo.kind,
                "id": todo.id,
                "key": todo.key,
                "tenant": todo.tenant,
                "body": _JSON.encode(todo.body),
                "correlation": todo.correlation,
                "traceparent": todo.traceparent,
            }
            for todo in plan.todos
        ]
        steps += [
            (sql.TODO_DONE, done),
            (sql.TODO_PUT, todos),
            (sql.RESULT_PUT, [vars(result) for result in batch.command_results]),
            (sql.NOTIFY, self._notices(batch, plan)),
        ]
        return [step for step in steps if step[1]]

    def _notices(self, batch: RowBatch, plan: TableChanges) -> list[Row]:
        """Return a batch's notifications, which Postgres sends at the commit, with its rows."""
        return [
            {"channel": self._channel(channel), "notice": notice}
            for channel, notices in (
                (
                    COMMAND_RESULTS_CHANNEL,
                    [result.command_id for result in batch.command_results],
                ),
                (TODOS_CHANNEL, sorted({todo.kind for todo in plan.todos})),
                (batch.projection, list(dict.fromkeys(batch.notices))),
            )
            for notice in notices
        ]

    async def _why_stale(self, batch: RowBatch, connection: Connection) -> CommitResult:
        """Raises Superseded."""
        stored_version = await connection.fetchval(
            "SELECT version FROM projections WHERE name = $1", batch.projection
        )
        if stored_version != batch.version:
            raise Superseded(batch.projection, batch.version, stored_version or 0)
        return CommitResult.STALE

    def _channel(self, channel: str) -> str:
        return f"{self.schema}_{channel}"

    async def set_caught_up(
        self, projection: str, partition: StreamPartition, flag: bool, stopped: str | None = None
    ) -> None:
        await self._run(sql.CAUGHT_UP, projection, *partition, flag, stopped)

    async def lease_rows(
        self, kind: str, count: int, row_lease_ms: Ms, of_tenant_max: int | None = None
    ) -> Sequence[LeasedRow]:
        """Up to `count` rows, in the order of their turns; all get the same token."""
        token = uuid4().hex
        with named_errors():
            rows = await self._pool.fetch(
                sql.LEASE_FIRST_ROWS, kind, count, row_lease_ms, token, OLDEST_ROWS_MAX
            )
            if len(rows) < count:
                rows += await self._pool.fetch(
                    sql.LEASE_ROWS,
                    kind,
                    count - len(rows),
                    row_lease_ms,
                    token,
                    CONTESTED_ROWS_MAX,
                    of_tenant_max,
                )
        return [
            LeasedRow(
                kind=row["kind"],
                id=row["id"],
                key=row["key"],
                tenant=row["tenant"],
                try_number=row["tries"],
                token=token,
                body=row["body"],
                failure=row["failure"],
                trail=Trail(row["correlation"], row["traceparent"]),
            )
            for row in sorted(rows, key=itemgetter("turn", "number"))
        ]

    async def renew(self, row: LeasedRow, row_lease_ms: Ms) -> bool:
        return await self._run(sql.RENEW, *_lease_key(row), row_lease_ms) == 1

    async def release(
        self, row: LeasedRow, delay_ms: Ms, failure: str | None = None, *, counts: bool = True
    ) -> None:
        """Give the row back; rows released at nearly one moment are one statement."""
        await self._releases(
            {
                "kind": row.kind,
                "id": row.id,
                "row_lease": row.token,
                "delay_ms": delay_ms,
                "failure": failure[:FAILURE_CHARACTERS_MAX] if failure else None,
                "uncounted": 0 if counts else 1,
            }
        )

    async def _release(self, releases: Sequence[Row]) -> Sequence[None]:
        await self._run(sql.RELEASE, encoding.encode(releases))
        return (None,) * len(releases)

    async def finish(self, row: LeasedRow) -> None:
        await self._run(sql.FINISH, *_lease_key(row))

    async def command_result(self, command_id: str) -> CommandResult | None:
        with named_errors():
            row = await self._pool.fetchrow(sql.RESULT_GET, command_id)
        if row is None:
            return None
        reason = row["reason"]
        known = None if reason is None else msgspec.convert(reason, Reason)
        return CommandResult(**{**dict(row), "reason": known})

    async def prune_command_results(self, age_ms: Ms) -> int:
        return await self._run(sql.PRUNE, age_ms)

    async def put_digest(self, partition: StreamPartition, offset: int, state_hash: str) -> None:
        await self._run(sql.DIGEST_PUT, *partition, offset, state_hash)

    def listen(
        self, channel: str, on_notice: Callable[[str], None]
    ) -> AbstractAsyncContextManager[None]:
        return listen(self._dsn, self._channel(channel), on_notice)

    async def run_ddl(self, statements: str) -> None:
        with named_errors():
            await self._pool.execute(statements)

    async def rows(self, table: str, where: Row | None = None) -> Sequence[dict[str, Any]]:
        names = list(where or {})
        condition = " AND ".join(f"{encoding.name(n)} = ${i + 1}" for i, n in enumerate(names))
        query = f"SELECT * FROM {encoding.name(table)} WHERE {condition or 'true'}"  # noqa: S608  # names are checked
        with named_errors():
            rows = await self._pool.fetch(query, *(where or {}).values())
        return [dict(row) for row in rows]

    async def close(self) -> None:
        self._pool.terminate()


def pool_of(store: Store) -> "asyncpg.Pool[Any]":
    """The connections of a service's store, for queries of its own. Raises TypeError."""
    if not isinstance(store, PostgresStore):
        raise TypeError(f"{type(store).__name__} has no SQL connections; read it with `rows`")
    return store.pool


def touched_rows(status: str) -> int:
    """Return the number in the status of a statement: `UPDATE 3` → 3."""
    return int(status.rpartition(" ")[2])


def _lease_key(row: LeasedRow) -> tuple[str, str, str]:
    return row.kind, row.id, row.token
