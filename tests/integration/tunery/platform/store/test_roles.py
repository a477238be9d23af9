"""PostgreSQL roles on the real server: each reaches its service's schema, and nothing else."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final
from uuid import uuid4

import asyncpg
import pytest

from schemas.access import KEEPS_ROWS, READER, REPORTS, schema_of
from services.billing.app import LEDGER, STORAGE, TENANTS
from services.gateway.views.host import VIEWS_PROJECTION
from tests.contract.store_suite import TABLES, commit, todo, upsert
from tests.infra.sql_boards import SQL_DASHBOARDS, in_postgres
from tests.infra.sql_boards import TENANTS as SHOWN_TENANTS
from tunery.local.postgres import dsn
from tunery.local.stack import Stack
from tunery.platform.store.postgres import open_store
from tunery.platform.store.preparation import prepare_roles
from tunery.platform.store.roles import default_roles, role_of
from tunery.runtime.store.abstract import StoreUnavailable

pytestmark = pytest.mark.security

#: what a role may not do in the schema of another service
FORBIDDEN: Final = (
    "SELECT * FROM {schema}.todos",
    "INSERT INTO {schema}.projections VALUES ('x', 1)",
    "UPDATE {schema}.positions SET next_offset = 0",
    "DELETE FROM {schema}.command_results",
    "TRUNCATE {schema}.todos",
    "LOCK TABLE {schema}.todos",
    "CREATE TABLE {schema}.more (n int)",
    "DROP TABLE {schema}.todos",
    "ALTER TABLE {schema}.todos ADD COLUMN more int",
    "SELECT {schema}.commit_batch('', 1, '', 1, 1, 1, '', '{{}}', '{{}}')",
    "GRANT USAGE ON SCHEMA {schema} TO PUBLIC",
    "DROP SCHEMA {schema} CASCADE",
    "SET ROLE tunery_{service}",
)
#: what no service may do anywhere
FORBIDDEN_ANYWHERE: Final = (
    "COPY (SELECT 1) TO PROGRAM 'true'",
    "SELECT pg_read_file('PG_VERSION')",
    "CREATE SCHEMA more",
    "CREATE TABLE public.more (n int)",
    "CREATE TEMPORARY TABLE more (n int)",
    "CREATE ROLE more",
    "SET session_replication_role = replica",
    "SET ROLE tunery",
)


def forbidden_in(service: str) -> list[str]:
    """Statements on a service's schema that other roles may not run."""
    return [text.format(schema=schema_of(service), service=service) for text in FORBIDDEN]


def address(servers: Stack, service: str = "", database: str = "tunery") -> str:
    assert servers.settings.postgres_port is not None
    return dsn(servers.settings.postgres_port, servers.settings.keys, service, database)


async def refusal_of(connection: Any, statement: str) -> str:
    """Run a statement, roll it back, and return the name of its error; empty: there was none."""
    transaction = connection.transaction()
    await transaction.start()
    try:
        await connection.execute(statement)
    except asyncpg.PostgresError as error:
        return type(error).__name__
    finally:
        await transaction.rollback()
    return ""


async def test_security_m3_no_service_reaches_the_schema_of_another(servers: Stack) -> None:
    async with own_database(servers) as database:
        await prepare_roles(address(servers, database=database), ROLES, {})
        for service in KEEPS_ROWS:  # tables belong to the role that creates them
            opened = await open_store(address(servers, service, database), schema_of(service), 4)
            await opened.close()
        refusals = dict[tuple[str, str], str]()
        for service in KEEPS_ROWS:
            connection = await asyncpg.connect(address(servers, service, database))
            own = f"SELECT * FROM {schema_of(service)}.todos"  # noqa: S608  # our names
            assert await refusal_of(connection, own) == ""
            for other in KEEPS_ROWS:
                if other != service:
                    refusals |= {
                        (service, statement): await refusal_of(connection, statement)
                        for statement in forbidden_in(other)
                    }
            refusals |= {
                (service, statement): await refusal_of(connection, statement)
                for statement in FORBIDDEN_ANYWHERE
            }
            await connection.close()
    assert len(refusals) == len(KEEPS_ROWS) * (
        (len(KEEPS_ROWS) - 1) * len(FORBIDDEN) + len(FORBIDDEN_ANYWHERE)
    )
    assert set(refusals.values()) == {"InsufficientPrivilegeError"}, refusals


async def test_security_m3_no_service_is_more_than_its_role(servers: Stack) -> None:
    operator = await asyncpg.connect(address(servers))
    rows = await operator.fetch(
        "SELECT rolname, rolsuper OR rolcreaterole OR rolcreatedb OR rolreplication "
        "OR rolbypassrls OR EXISTS (SELECT FROM pg_auth_members WHERE member = pg_roles.oid) "
        "AS more FROM pg_roles WHERE rolname LIKE 'tunery\\_%'"
    )
    await operator.close()
    more = {row["rolname"]: row["more"] for row in rows}
    assert [more[role] for role in ROLES.values()] == [False] * len(ROLES)
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await asyncpg.connect(address(servers, "gateway", "postgres"))
    others = address(servers, "gateway").replace(role_of("gateway"), role_of("billing"))
    with pytest.raises(asyncpg.InvalidPasswordError):
        await asyncpg.connect(others)


@asynccontextmanager
async def own_database(servers: Stack, owner: str = "tunery") -> AsyncIterator[str]:
    """Create a database for one test; its name."""
    database, admin = f"roles_{uuid4().hex[:12]}", await asyncpg.connect(address(servers))
    await admin.execute(f"CREATE DATABASE {database} OWNER {owner}")
    try:
        yield database
    finally:
        await admin.execute(f"DROP DATABASE {database} WITH (FORCE)")
        await admin.close()


ROLES: Final = default_roles()


async def test_tables_of_an_earlier_version_get_the_role_of_their_service(servers: Stack) -> None:
    async with own_database(servers) as database:
        operator = address(servers, database=database)
        earlier = await open_store(operator, "registry", 4)
        await earlier.ensure(TABLES)
        await commit(earlier, 0, 1, upsert("1", name="kept"), todo("a"))
        await earlier.close()
        for _twice in range(2):
            await prepare_roles(operator, ROLES, {})
        store = await open_store(address(servers, "registry", database), "registry", 4)
        assert not await store.ensure(TABLES)
        await commit(store, 1, 2, upsert("2", name="new"), todo("b"))
        assert [row["name"] for row in await store.rows("things")] == ["kept", "new"]
        await store.rebuild(TABLES)  # drops and makes tables
        await store.close()


async def test_an_operator_who_is_no_superuser_prepares_and_reads_all(servers: Stack) -> None:
    operator = f"op_{uuid4().hex[:8]}"
    roles = {service: f"{operator}_{service}" for service in ROLES}
    admin = await asyncpg.connect(address(servers))
    await admin.execute(f"CREATE ROLE {operator} LOGIN CREATEROLE PASSWORD 'secret'")
    async with own_database(servers, operator) as database:
        theirs = address(servers, database=database).replace(
            f"tunery:{servers.settings.keys.postgres_password}", f"{operator}:secret"
        )
        for _twice in range(2):
            await prepare_roles(theirs, roles, {})
        await admin.execute(f"ALTER ROLE {roles['eval']} PASSWORD 'secret'")
        as_eval = theirs.replace(f"{operator}:", f"{roles['eval']}:")
        await (await open_store(as_eval, "eval", 4)).close()
        connection = await asyncpg.connect(theirs)
        assert await connection.fetch("SELECT * FROM eval.positions") == []
        await connection.close()
    for role in (*roles.values(), operator):
        await admin.execute(f"DROP OWNED BY {role}")
        await admin.execute(f"DROP ROLE {role}")
    await admin.close()


async def test_security_m3_readers_read_views_and_nothing_else(servers: Stack) -> None:
    tables = {"billing": (LEDGER, STORAGE, TENANTS), "gateway": (VIEWS_PROJECTION,)}
    async with own_database(servers) as database:
        operator = address(servers, database=database)
        await prepare_roles(operator, ROLES, {})
        for service, projections in tables.items():
            store = await open_store(address(servers, service, database), schema_of(service), 4)
            for projection in projections:
                await store.ensure(projection.described())
            for projection in projections:
                await store.run_ddl(projection.once_built)
            await store.close()
        reader = await asyncpg.connect(address(servers, READER, database))
        for limit in ("statement_timeout", "idle_in_transaction_session_timeout"):
            assert await reader.fetchval(f"SHOW {limit}") == "30s"
        for board in SQL_DASHBOARDS:
            for panel in board.panels:
                await reader.fetch(in_postgres(panel.sql, "acme"))
        await reader.fetch(SHOWN_TENANTS)
        forbidden = [statement for service in KEEPS_ROWS for statement in forbidden_in(service)]
        forbidden += ["SELECT * FROM billing.ledger"]
        forbidden += [f"SELECT * FROM {schema_of('gateway')}.keys"]  # noqa: S608  # our names
        forbidden += [f"CREATE TABLE {schema}_reports.more (n int)" for schema in REPORTS]
        forbidden += FORBIDDEN_ANYWHERE
        refusals = {statement: await refusal_of(reader, statement) for statement in forbidden}
        await reader.execute("SET default_transaction_read_only = off")
        refusals |= {statement: await refusal_of(reader, statement) for statement in forbidden}
        await reader.close()
    assert set(refusals.values()) == {"InsufficientPrivilegeError"}, refusals


async def test_a_role_that_may_do_more_is_refused(servers: Stack) -> None:
    admin, role = await asyncpg.connect(address(servers)), f"wide_{uuid4().hex[:8]}"
    await admin.execute(f"CREATE ROLE {role} CREATEDB")
    async with own_database(servers) as database:
        with pytest.raises(asyncpg.RaiseError, match="may do more than a service"):
            await prepare_roles(address(servers, database=database), {**ROLES, "eval": role}, {})
    await admin.execute(f"DROP ROLE {role}")
    await admin.close()


async def test_a_missing_schema_is_named_with_what_to_do(servers: Stack) -> None:
    async with own_database(servers) as database:
        with pytest.raises(StoreUnavailable, match=r"eval is missing.*tunery postgres sql"):
            await open_store(address(servers, "eval", database), "eval", 4)
