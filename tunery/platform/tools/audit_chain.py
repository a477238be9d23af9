"""Verifies the records of the audit topic: each must name the hash of the one before it."""

from collections import deque
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

import msgspec

from schemas.audit import AuditRecorded
from schemas.envelope import GENESIS
from tunery.runtime.journal.codec import MALFORMED

#: a new chain follows one of so many records that the log ended with shortly before
RECENT_MAX: Final = 1_000
_DECODER: Final[msgspec.json.Decoder[AuditRecorded]] = msgspec.json.Decoder(AuditRecorded)


class BrokenAuditChain(Exception):
    """A record was changed, removed or added; the message says which and why that follows."""


@dataclass
class AuditTally:
    """Totals of a verification."""

    records: int = 0
    entries: int = 0
    writers: int = 0
    lost: int = 0  # entries that their writers dropped for lack of room
    head: str = GENESIS.hex()  # the last hash


class AuditChain:
    """Takes the bytes of records from the first one on, in the order of the log."""

    def __init__(self) -> None:
        self.tally = AuditTally()
        self._heads: dict[str, tuple[int, str]] = {}  # writer → number and hash of its last record
        self._recent: deque[str] = deque(maxlen=RECENT_MAX)

    def take(self, value: bytes) -> None:
        """Raises BrokenAuditChain. A record that is on the log twice counts once."""
        position = self.tally.records
        self.tally.records += 1
        digest = sha256(value).hexdigest()
        if digest in self._recent:
            return
        try:
            record = _DECODER.decode(value)
        except MALFORMED as error:
            raise BrokenAuditChain(f"record {position} cannot be read: {error}") from error
        self._expect(position, record)
        self._heads[record.writer] = record.number, digest
        self._recent.append(digest)
        self.tally.entries += len(record.entries)
        self.tally.lost += record.lost
        self.tally.writers = len(self._heads)
        self.tally.head = digest

    def _expect(self, position: int, record: AuditRecorded) -> None:
        where = f"record {position} (writer {record.writer}, number {record.number})"
        number, previous = self._heads.get(record.writer, (-1, ""))
        if record.number != number + 1:
            raise BrokenAuditChain(f"{where}: the writer's number {number + 1} should come here")
        if number >= 0:
            follows = record.previous == previous
        elif self._recent:
            follows = record.previous in self._recent
        else:
            follows = record.previous == GENESIS.hex()
        if not follows:
            raise BrokenAuditChain(f"{where}: the record before it was changed or removed")
