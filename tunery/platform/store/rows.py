"""Rows on their way to PostgreSQL, as one JSON array that `json_populate_recordset` unfolds."""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec

from tunery.runtime.store.changes import Columns

IDENTIFIER: Final = re.compile(r"^[a-z_][a-z0-9_]{0,62}$")
_JSON: Final = msgspec.json.Encoder()
_NUL: Final = re.compile(rb"(?<!\\)((?:\\\\)*)\\u0000")  # an escaped NUL, not an escaped backslash
_NUL_STANDS_FOR: Final = rb"\1\\ufffd"


def name(identifier: str) -> str:
    """The identifier, quoted. Raises ValueError for what is not a plain lower-case name."""
    if not IDENTIFIER.match(identifier):
        raise ValueError(f"{identifier!r} is not a name for a table or column: use [a-z0-9_]")
    return f'"{identifier}"'


def encode(rows: Sequence[Mapping[str, Any]]) -> str:
    """JSON of rows. Bytes become text of type bytea; NUL, which PostgreSQL cannot store, U+FFFD."""
    body = _JSON.encode([_plain(row) for row in rows])
    if b"\\u0000" in body:
        body = _NUL.sub(_NUL_STANDS_FOR, body)
    return body.decode("utf-8")


def _plain(row: Mapping[str, Any]) -> Mapping[str, Any]:
    if bytes not in map(type, row.values()):
        return row
    return {
        column: "\\x" + value.hex() if isinstance(value, bytes) else value
        for column, value in row.items()
    }


@lru_cache(maxsize=1_024)
def upsert_sql(table: str, key: Columns, columns: Columns, *, insertable: bool = False) -> str:
    """Update the rows that are there, insert the others. `$1`: what `encode` gives.

    insertable: an insert with these columns alone violates no constraint. One statement does it
    then, in less than half the time. Otherwise there are two steps, because an insert of a part of
    a row fails on NOT NULL columns even where the row exists and only an update is meant.
    """
    keys, values = [name(k) for k in key], [name(c) for c in columns if c not in key]
    every = ", ".join(keys + values)
    conflict = f"ON CONFLICT ({', '.join(keys)})"
    rows = f"SELECT {every} FROM json_populate_recordset(NULL::{name(table)}, $1::text::json)"  # noqa: S608  # names are checked by `name`
    insert = f"INSERT INTO {name(table)} ({every})"
    if not values:
        return f"{insert} {rows} {conflict} DO NOTHING"
    replaced = f"DO UPDATE SET {', '.join(f'{c} = excluded.{c}' for c in values)}"
    if insertable:
        return f"{insert} {rows} {conflict} {replaced}"
    update = ", ".join(f"{c} = i.{c}" for c in values)
    same = " AND ".join(f"t.{k} = i.{k}" for k in keys)
    known = " AND ".join(f"u.{k} = i.{k}" for k in keys)
    returned = ", ".join(f"t.{k}" for k in keys)
    return (
        f"WITH i AS MATERIALIZED ({rows}), "  # noqa: S608  # as above
        f"u AS (UPDATE {name(table)} t SET {update} FROM i WHERE {same} RETURNING {returned}) "
        f"{insert} SELECT {every} FROM i "
        f"WHERE NOT EXISTS (SELECT FROM u WHERE {known}) {conflict} {replaced}"
    )


@lru_cache(maxsize=1_024)
def delete_sql(table: str, key: Columns) -> str:
    """Delete the rows with these keys. `$1`: what `encode` gives."""
    same = " AND ".join(f"t.{name(k)} = i.{name(k)}" for k in key)
    return (
        f"DELETE FROM {name(table)} t USING "  # noqa: S608  # names are checked by `name`
        f"json_populate_recordset(NULL::{name(table)}, $1::text::json) i WHERE {same}"
    )
