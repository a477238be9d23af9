"""A table of a read model, declared once: DDL, writes and reads come from the fields of its row.

    class FileRow(TableRow):
        tenant: str
        bytes: int                    # set by the first event of a file
        failure: str | None = None    # set by a later one

    FILES = Table("files", FileRow, key=("tenant", "id"), order="sequence")

Every column but the key is nullable in PostgreSQL, because the projection of one journal may update
a row before that of another creates it. A row is not read until all its required fields are set.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import NoneType, UnionType
from typing import (
    Any,
    Generic,
    Literal,
    Self,
    TypeVar,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
)
from typing import get_type_hints as hints_of

import msgspec
from msgspec import Struct, field

from schemas.records import build_from, shared_fields
from tunery.runtime.verbs import Delete, Upsert

SQL_TYPES: Mapping[type, str] = {
    str: "text",
    bool: "boolean",
    int: "bigint",
    float: "double precision",
}


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
class TableRow(Struct, frozen=True, kw_only=True):
    """Base of all rows. `insert` does not write fields that have their default value."""

    id: str

    @classmethod
    def of(cls, /, *sources: object, **values: Any) -> Self:
        """Build a row: a column comes from `values`, or else from the first source that has it."""
        return build_from(cls, *sources, **values)


R = TypeVar("R", bound=TableRow)
Key = Mapping[str, Any]


@dataclass(frozen=True)
class TableIndex:
    """Index of a table."""

    columns: tuple[str, ...]  # columns in their order
    where: str = ""  # condition for the rows that it covers; empty: all rows


@dataclass(frozen=True)
class Table(Generic[R]):
    """Table of the read model."""

    name: str
    row: type[R]
    key: tuple[str, ...]
    order: str  # column that lists are sorted by, then by `id`
    indexes: tuple[TableIndex, ...] = ()
    # text column that is compared byte by byte, regardless of the collation of the database
    bytewise: str = "id"

    @cached_property
    def columns(self) -> Mapping[str, str]:
        """Column → its type in PostgreSQL."""
        hints = hints_of(self.row)
        return {name: _sql_type(_without_none(hints[name])) for name in self._fields}

    @cached_property
    def required(self) -> tuple[str, ...]:
        """Columns besides the key that a row must have before it is read."""
        hints = hints_of(self.row)
        return tuple(
            name for name in self._fields if name not in self.key and not _takes_none(hints[name])
        )

    @cached_property
    def _fields(self) -> tuple[str, ...]:
        return self.row.__struct_fields__

    @cached_property
    def _defaults(self) -> Mapping[str, Any]:
        """Column → its default; kept, because reading it evaluates all annotations of the row."""
        return {info.name: info.default for info in msgspec.structs.fields(self.row)}

    def ddl(self) -> str:
        """Statements that create the table and its indexes if they do not exist."""
        lines = [f"{name} {self._declared(name)}" for name in self.columns]
        body = ", ".join((*lines, f"PRIMARY KEY ({', '.join(self.key)})"))
        indexes = (
            f"CREATE INDEX IF NOT EXISTS {'_'.join((self.name, *index.columns))} ON {self.name} "
            f"({', '.join(index.columns)}){index.where and f' WHERE {index.where}'};"
            for index in self.indexes
        )
        return "\n".join((f"CREATE TABLE IF NOT EXISTS {self.name} ({body});", *indexes))

    def _declared(self, name: str) -> str:
        return self.columns[name] + (' COLLATE "C"' if name == self.bytewise else "")

    def insert(self, row: R) -> Upsert:
        """Write the row: its key, the fields without a default, and those that differ from it."""
        values = {
            column: value
            for column, default in self._defaults.items()
            if (value := getattr(row, column)) is not default
        }
        key = {name: values.pop(name) for name in self.key}
        return Upsert(self.name, key, msgspec.to_builtins(values))

    def update(self, key: Key, /, **values: Any) -> Upsert:
        """Write these columns of the row. Raises TypeError for a column that does not exist."""
        unknown = [name for name in (*key, *values) if name not in self.columns]
        if unknown or tuple(key) != self.key:
            raise TypeError(f"{self.name} has no column {unknown}, or its key is not {self.key}")
        return Upsert(self.name, key, msgspec.to_builtins(values))

    def shared(self, *sources: object) -> dict[str, Any]:
        """Columns besides the key that sources have by the same names; the first source wins."""
        names = (name for name in self._fields if name not in self.key)
        return shared_fields(names, sources, {})

    def delete(self, key: Key, /) -> Delete:
        return Delete(self.name, key)

    def position(self, row: R) -> tuple[Any, str]:
        """The row's position in lists of its table."""
        return getattr(row, self.order), row.id

    def read(self, record: Mapping[str, Any]) -> R | None:
        """Convert a record of the store; None while a required column is null.

        Raises msgspec.ValidationError for a value of another type than its column's.
        """
        if any(record.get(name) is None for name in self.required):
            return None
        return msgspec.convert(record, self.row)


def _without_none(hint: Any) -> Any:
    if not _takes_none(hint):
        return hint
    types = [part for part in get_args(hint) if part is not NoneType]
    return types[0] if len(types) == 1 else object


def _takes_none(hint: Any) -> bool:
    return hint is Any or (get_origin(hint) in (Union, UnionType) and NoneType in get_args(hint))


def _sql_type(hint: Any) -> str:
    """A structure is a jsonb column, as is everything that PostgreSQL has no type for."""
    if get_origin(hint) is Literal:
        return "text"
    return SQL_TYPES.get(hint, "jsonb")
