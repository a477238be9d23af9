"""Ranges of a journal that are exported together, and the names of their objects."""

from typing import Final, NamedTuple

from msgspec import Struct

from tunery.runtime.journal.reader import Position

FOLDER: Final = "exports"


class ExportRange(Struct, frozen=True, kw_only=True):
    """The records from `first` up to `end` of one partition."""

    first: Position
    end: Position


def range_key(stream: str, partition: int, first: Position) -> str:
    """Name of the object that says where the range that begins at `first` ends."""
    return f"{FOLDER}/{stream}/{partition}/{first.offset:015d}.json"


def newest_key(stream: str, partition: int) -> str:
    """Name of the object that says where the newest range begins."""
    return f"{FOLDER}/{stream}/{partition}/newest.json"


class RangeFile(NamedTuple):
    tenant: str
    kind: str
    month: str
    suffix: str  # the end of its name


def file_key(file: RangeFile, stream: str, partition: int, written: ExportRange) -> str:
    """Name of a file: one tenant's rows of one month in one range."""
    number = f"{partition}-{written.end.acceptance.incarnation}"
    name = f"{stream}-{number}-{written.first.offset:015d}-{written.end.offset:015d}"
    return f"t/{file.tenant}/exports/{file.kind}/{file.month}/{name}{file.suffix}"
