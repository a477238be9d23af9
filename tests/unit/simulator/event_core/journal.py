"""Accepted entries of the scenario's streams, as a reader gets them, without a run."""

from typing import Any

from schemas.envelope import GENESIS, Entry, Idempotency, Message, Source
from tunery.runtime.journal.reader import Accepted, Position


class SmallJournal:
    """Entries of one partition, each with the next cause, offset and number of its key."""

    def __init__(self, stream: str = "seats") -> None:
        self.stream = stream
        self.accepted: list[Accepted] = []
        self._seqs: dict[str, int] = {}

    def add(
        self,
        *events: Message,
        key: str = "ada",
        at: int | None = None,
        source: Source | None = None,
        idempotency: Idempotency | None = None,
    ) -> str:
        """Append an entry with these events; returns the id of its command."""
        cause = len(self.accepted)
        self._seqs[key] = self._seqs.get(key, 0) + 1
        entry = Entry(
            epoch=0,
            cause=cause,
            prev=GENESIS,
            at=1_000 + cause if at is None else at,
            command_id=f"{self.stream}-{cause}",
            key=key,
            tenant=key,
            seq=self._seqs[key],
            source=source,
            idempotency=idempotency,
        )
        position = Position(offset=cause + 1)
        value = f"{self.stream} {cause}".encode()
        events_read: tuple[Any, ...] = events
        self.accepted.append(Accepted(self.stream, 0, entry, events_read, position, value))
        return entry.command_id
