"""Ranges of a journal that are exported together, and the names of their objects."""

from typing import Final

from msgspec import Struct

from tunery.runtime.journal.reader import Position

FOLDER: Final = "exports/pool"


class ExportRange(Struct, frozen=True, kw_only=True):
    """The records from `first` up to `end` of one partition."""

    first: Position
    end: Position


def range_key(partition: int, first: Position) -> str:
    """Name of the object that says where the range that begins at `first` ends."""
    return f"{FOLDER}/{partition}/{first.offset:015d}.json"


def newest_key(partition: int) -> str:
    """Name of the object that says where the newest range begins."""
    return f"{FOLDER}/{partition}/newest.json"


def file_key(
    tenant: str, kind: str, month: str, partition: int, written: ExportRange, suffix: str
) -> str:
    """Name of a file: one tenant's rows of one month in one range."""
    incarnation = written.end.acceptance.incarnation
    name = f"pool-{partition}-{incarnation}-{written.first.offset:015d}-{written.end.offset:015d}"
    return f"t/{tenant}/exports/{kind}/{month}/{name}{suffix}"
