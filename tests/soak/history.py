"""Reads journals with an acceptance rule that is written independently of the runtime's.

Written from docs/decisions/0001 and from bytes; it shares no code with the runtime, on purpose.

An owner that takes a partition writes a claim, and the claim's offset is the epoch of what it
writes next. An entry counts when it has the newest epoch, the number after that of the last entry
that counted, and the hash of that entry's bytes. With an older epoch or another number it is void.
An epoch that was never claimed, or another hash, means that another log was read or written.
"""

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

NO_ENTRY: Final = b"\0" * 32


class StreamPartition(NamedTuple):
    stream: str
    partition: int

    def __str__(self) -> str:
        return f"{self.stream}/{self.partition}"


@dataclass(frozen=True)
class Problem:
    """`kind`: lost, duplicated, reordered, divergent, invented, limit, rows or stuck."""

    kind: str
    where: str
    text: str

    def __str__(self) -> str:
        return f"{self.kind} in {self.where}: {self.text}"


@dataclass(frozen=True)
class Entry:
    """An accepted entry. number: of the command that it decides."""

    partition_id: StreamPartition
    offset: int
    number: int
    at: int
    command: str
    key: str
    tenant: str
    seq: int
    events: tuple[dict[str, Any], ...]
    source: tuple[str, int, int, int, int] | None
    need: str | None  # that a client's command was about
    value: bytes

    def events_of(self, *kinds: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["type"].partition(".")[0] in kinds]


@dataclass
class Partition:
    """A journal partition with its accepted entries. void: (offset, why, who claimed the epoch)."""

    partition_id: StreamPartition
    entries: list[Entry] = field(default_factory=list)
    void: list[tuple[int, str, str]] = field(default_factory=list)
    owners: dict[int, str] = field(default_factory=dict)  # by epoch
    problems: list[Problem] = field(default_factory=list)

    @property
    def by_offset(self) -> dict[int, Entry]:
        return {entry.offset: entry for entry in self.entries}


def apply_acceptance_rule(
    partition_id: StreamPartition, records: Sequence[tuple[int, bytes]]
) -> Partition:
    """Apply the acceptance rule to all records (offset, value) of a partition."""
    judged_partition = Partition(partition_id)
    epoch, number, link = -1, -1, NO_ENTRY
    for expected, (offset, value) in enumerate(records):
        if offset != expected:
            judged_partition.problems.append(
                Problem("lost", str(partition_id), f"offset {expected} is missing from the journal")
            )
            return judged_partition
        try:
            record = json.loads(value)
            if record["record"] == "claim":
                epoch, judged_partition.owners[offset] = offset, record["owner"]
                continue
            previous = base64.b64decode(record["prev"])
        except (ValueError, KeyError, TypeError) as error:
            text = f"offset {offset} cannot be read: {error!r}"
            judged_partition.problems.append(Problem("divergent", str(partition_id), text))
            return judged_partition
        owner = judged_partition.owners.get(record["epoch"], "no owner")
        if record["epoch"] < epoch:
            judged_partition.void.append((offset, "epoch", owner))
        elif record["epoch"] > epoch:
            text = f"offset {offset} has epoch {record['epoch']}, which was never claimed"
            judged_partition.problems.append(Problem("divergent", str(partition_id), text))
            return judged_partition
        elif record["cause"] != number + 1:
            judged_partition.void.append((offset, "number", owner))
        elif previous != link:
            text = f"offset {offset} continues another history"
            judged_partition.problems.append(Problem("divergent", str(partition_id), text))
            return judged_partition
        else:
            number, link = number + 1, hashlib.blake2b(value, digest_size=32).digest()
            judged_partition.entries.append(_entry(partition_id, offset, record, value))
    return judged_partition


def _entry(
    partition_id: StreamPartition, offset: int, record: dict[str, Any], value: bytes
) -> Entry:
    source = record.get("source")
    idempotency = record.get("idempotency")
    return Entry(
        partition_id,
        offset,
        record["cause"],
        record["at"],
        record["command_id"],
        record["key"],
        record["tenant"],
        record["seq"],
        tuple(record.get("events", ())),
        None if source is None else (source[0], source[1], source[2], source[3], source[4]),
        None if idempotency is None else idempotency["key"],
        value,
    )
