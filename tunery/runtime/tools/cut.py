"""Consistent cuts through journals: with each record, the cut has the one that it follows from.

A cut is the end of every partition. `tunery backup` extends the ends that it found, and
`tunery restore` shortens them to a moment; decision 0048 has the argument.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from schemas.envelope import Entry
from schemas.units import Ms
from tunery.runtime.bus.abstract import Record
from tunery.runtime.journal.codec import decode_record


class Cause(NamedTuple):
    """The record from which another one follows."""

    name: str  # of its partition: stream/partition
    offset: int


class Mark(NamedTuple):
    """Facts of a record that decide where a cut may go."""

    name: str  # of its partition: stream/partition
    offset: int
    timestamp: Ms  # of its broker
    cause: Cause | None


def mark_of(stream: str, record: Record) -> Mark:
    """Raises Undecodable."""
    cause, entry = None, decode_record(record.value)
    if isinstance(entry, Entry) and entry.source is not None:
        cause = Cause(f"{entry.source.stream}/{entry.source.partition}", entry.source.offset)
    return Mark(f"{stream}/{record.partition}", record.offset, record.timestamp, cause)


def extended_cut(
    ends: Mapping[str, int],
    causes: Mapping[str, int],
    later: Mapping[str, Sequence[Mark]],
    until_ms: Ms,
) -> dict[str, int]:
    """Return the smallest consistent cut that has all records before `ends`, and those of
    `until_ms` and earlier.

    causes: the newest offset in each partition that a record before `ends` follows from.
    later: records from `ends` on, in order.

    A cause was durable before what follows from it was written. So it is in `later`, where that was
    read after `ends`; what is missing all the same, `missing_causes` names.
    """
    cut, needed = dict(ends), dict(causes)
    is_growing = True
    while is_growing:
        is_growing = False
        for name, marks in later.items():
            for mark in marks[cut[name] - ends[name] :]:
                if mark.timestamp > until_ms and mark.offset > needed.get(name, -1):
                    break
                cut[name] = mark.offset + 1
                is_growing = True
                if mark.cause is not None:
                    caused_by = mark.cause.name
                    needed[caused_by] = max(mark.cause.offset, needed.get(caused_by, -1))
    return cut


def shortened_cut(
    ends: Mapping[str, int], until_ms: Ms, read_marks: Callable[[], Iterable[Mark]]
) -> dict[str, int]:
    """Return the largest consistent cut within `ends` that has no record after `until_ms`.

    read_marks: yields all records, those of a partition in order; called until nothing changes.
    """
    cut = dict(ends)
    for mark in read_marks():
        if mark.timestamp > until_ms:
            cut[mark.name] = min(cut[mark.name], mark.offset)
    is_shrinking = True
    while is_shrinking:
        is_shrinking = False
        for mark in read_marks():
            if mark.cause is None or mark.offset >= cut[mark.name]:
                continue
            if mark.cause.offset >= cut.get(mark.cause.name, mark.cause.offset + 1):
                cut[mark.name] = mark.offset
                is_shrinking = True
    return cut
