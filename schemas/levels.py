"""Feature levels of the log: a release writes what is new only once all processes can read it.

A message, or a field, that older releases do not know names the level that it came with (`SINCE` of
the class, `Meta(extra={"since": N})` of the field). It is written once an operator has raised the
log to that level (`tunery upgrade finalize`); until then the release before can take over again.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

from msgspec import Struct, inspect

from schemas.envelope import FIRST_LEVEL, Message, Part
from schemas.units import Ms


class Level(NamedTuple):
    """A level of the log."""

    number: int
    brings: str  # what is written from this level on
    # the release that came with it. Messages are added to a level until it is released.
    release: str | None = None


LEVELS: Final = (Level(FIRST_LEVEL, "everything of 0.1.0"),)
LEVEL: Final = LEVELS[-1].number  # the highest that this release can read
SILENT_MS: Final[Ms] = 180_000  # a process that says nothing for so long is not waited for


class LevelOrder(Part, omit_defaults=True):
    """An operator's order to raise the level of a stream: the record under `stream/level`."""

    stream: str
    level: int
    operator: str  # name of the person, and of the machine
    # sender, signature: see `Envelope`, for this stream
    sender: str | None = None
    signature: str | None = None


class ReleaseNotice(Part, omit_defaults=True):
    """Record under the name of a process: the level that it can read, repeated while it runs."""

    service: str  # name of the service, or `node.` and an id
    process: str
    release: str  # version of Tunery
    level: int  # the highest that it can read
    ended: bool = False  # the process stops: an upgrade does not wait for it
    # sender, signature: see `Envelope`
    sender: str | None = None
    signature: str | None = None


class NewerField(NamedTuple):
    """A field that came after its struct."""

    name: str
    default: Any
    since: int


def level_of(message: Message) -> int:
    """Return the lowest level of the log at which this message may be written.

    A newer field counts where it has another value than its default, also inside of parts. What
    older releases skip may be written at once.
    """
    kind = type(message)
    if kind.SKIPPABLE:
        return FIRST_LEVEL
    newer = newer_fields(kind)
    return max(kind.SINCE, _level_of_fields(message, newer)) if newer else kind.SINCE


def _level_of_fields(value: Any, newer: Mapping[type, tuple[NewerField, ...]]) -> int:
    match value:
        case Struct():
            own = (
                field.since
                for field in newer.get(type(value), ())
                if getattr(value, field.name) != field.default
            )
            inner = (getattr(value, name) for name in value.__struct_fields__)
            of_inner = (_level_of_fields(each, newer) for each in inner)
            return max(FIRST_LEVEL, *own, *of_inner)
        case tuple() | list():
            return max((_level_of_fields(each, newer) for each in value), default=FIRST_LEVEL)
        case dict():
            return _level_of_fields(list(value.values()), newer)
        case _:
            return FIRST_LEVEL


@lru_cache(maxsize=1_024)
def newer_fields(kind: type[Struct]) -> Mapping[type, tuple[NewerField, ...]]:
    """Return the newer fields of a struct and of all structs inside of it; mostly none."""
    by_struct: dict[type, tuple[NewerField, ...]] = {}
    for struct in _structs(inspect.type_info(kind), set()):
        fields = tuple(
            NewerField(field.name, field.default, field.type.extra["since"])
            for field in struct.fields
            if isinstance(field.type, inspect.Metadata)
            and field.type.extra is not None
            and "since" in field.type.extra
        )
        if fields:
            by_struct[struct.cls] = fields
    return by_struct


def _structs(node: Any, reached: set[type]) -> Iterator[inspect.StructType]:
    """All structs of a type, each once."""
    match node:
        case inspect.StructType() if node.cls not in reached:
            reached.add(node.cls)
            yield node
            inner: tuple[Any, ...] = tuple(field.type for field in node.fields)
        case inspect.Metadata():
            inner = (node.type,)
        case inspect.UnionType():
            inner = node.types
        case inspect.TupleType():
            inner = node.item_types
        case inspect.VarTupleType() | inspect.ListType():
            inner = (node.item_type,)
        case inspect.DictType():
            inner = (node.value_type,)
        case _:
            inner = ()
    for each in inner:
        yield from _structs(each, reached)
