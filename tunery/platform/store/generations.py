"""Schemas of one service beside each other, one for each version of its rows.

A release reads and fills the schema of its own version (`schemas.access.schema_of`). So the rows of
a new version are made while processes of the release before serve those of theirs, and it can be
taken back. A projection that has not changed is copied; all others are made from the log. Schemas
that nobody is connected to any more are dropped.
"""

import re
from typing import Any, Final

from tunery.platform.store.rows import name
from tunery.runtime.store.abstract import Tables

VERSIONED: Final = re.compile(r"^([a-z_]+?)_v([0-9]+)$")
COPY_S_MAX: Final = 3_600.0
SCHEMAS: Final = "SELECT nspname FROM pg_namespace WHERE nspname = $1 OR nspname ~ $2"
COLUMNS: Final = """
SELECT attname FROM pg_attribute
WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""
#: Processes say the schema that they use (`connect_store`). Everybody may read that of all.
IN_USE: Final = """
SELECT application_name FROM pg_stat_activity WHERE datname = current_database()
"""


async def older_schemas(connection: Any, schema: str) -> list[str]:
    """Return the schemas of the same service with earlier versions, the newest first.

    The service's name alone is a schema of the time before they had versions. None for a service
    whose schema has no version.
    """
    versioned = VERSIONED.match(schema)
    if versioned is None:
        return []
    service, own = versioned[1], int(versioned[2])
    rows = await connection.fetch(SCHEMAS, service, f"^{service}_v[0-9]+$")
    versions = {row["nspname"]: _version_of(row["nspname"]) for row in rows}
    older = [known for known, version in versions.items() if version < own]
    return sorted(older, key=lambda known: versions[known], reverse=True)


async def adopt(connection: Any, schema: str, tables: Tables) -> bool:
    """Copy rows and positions of a projection from the newest earlier schema that has them in the
    same version; False if there is none.

    Positions come first: entries that are read meanwhile are read once more, and change nothing.
    """
    for older in await older_schemas(connection, schema):
        if await _version_in(connection, older, tables.projection) != tables.version:
            continue
        await connection.execute(
            "INSERT INTO positions (projection, stream, partition, next_offset, position) "  # noqa: S608  # names are checked
            "SELECT projection, stream, partition, next_offset, position "
            f"FROM {name(older)}.positions WHERE projection = $1",
            tables.projection,
        )
        for table in tables.tables:
            attributes = await connection.fetch(COLUMNS, name(table))
            columns = ", ".join(name(row["attname"]) for row in attributes)
            await connection.execute(
                f"INSERT INTO {name(table)} ({columns}) "  # noqa: S608  # names are checked
                f"SELECT {columns} FROM {name(older)}.{name(table)}",
                timeout=COPY_S_MAX,
            )
        return True
    return False


async def unused_schemas(connection: Any, schema: str) -> list[str]:
    """Return the earlier schemas of a service that no process is connected to."""
    older = await older_schemas(connection, schema)
    used = {row["application_name"] for row in await connection.fetch(IN_USE)}
    return [known for known in older if application_of(known) not in used]


async def drop_schema(connection: Any, schema: str) -> None:
    await connection.execute(f"DROP SCHEMA IF EXISTS {name(schema)} CASCADE", timeout=COPY_S_MAX)


def application_of(schema: str) -> str:
    """Return what processes say who use a schema."""
    return f"tunery-{schema}"


def _version_of(schema: str) -> int:
    versioned = VERSIONED.match(schema)
    return 0 if versioned is None else int(versioned[2])


async def _version_in(connection: Any, schema: str, projection: str) -> int | None:
    """The version in which a schema has a projection; None if it has not."""
    if await connection.fetchval("SELECT to_regclass($1)", f"{name(schema)}.projections") is None:
        return None
    version: int | None = await connection.fetchval(
        f"SELECT version FROM {name(schema)}.projections WHERE name = $1",  # noqa: S608  # checked
        projection,
    )
    return version
