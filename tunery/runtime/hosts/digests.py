"""Owners say, at rest, what their state is: the live half of `tunery replay --verify`.

A digest is a hash of the whole fold of a partition at a journal offset. It costs one encoding of
the state, so it is written only when a partition has been quiet for a moment.
"""

import logging
from collections.abc import Sequence
from typing import Any, Final

import asyncpg

from schemas.units import Ms
from tunery.runtime.hosts.aggregate import AggregateHost
from tunery.runtime.journal.codec import state_hash
from tunery.runtime.ports import Runtime
from tunery.runtime.telemetry.logs import log_event

LOG: Final = logging.getLogger("tunery.work")
EVERY_MS: Final[Ms] = 2_000
TABLE: Final = """
CREATE TABLE IF NOT EXISTS digests (
    stream text NOT NULL,
    partition integer NOT NULL,
    journal_offset bigint NOT NULL,
    state_hash text NOT NULL,
    PRIMARY KEY (stream, partition)
)
"""
PUT: Final = """
INSERT INTO digests (stream, partition, journal_offset, state_hash) VALUES ($1, $2, $3, $4)
ON CONFLICT (stream, partition) DO UPDATE
SET journal_offset = excluded.journal_offset, state_hash = excluded.state_hash
"""


class Digests:
    """Implements `Host` for the owners of one process."""

    name = "digests"

    def __init__(self, runtime: Runtime, owners: Sequence[AggregateHost[Any]]) -> None:
        self._runtime, self._owners = runtime, owners
        self._seen: dict[tuple[str, int], int] = {}
        self._written: dict[tuple[str, int], int] = {}

    async def ready(self) -> None:
        """Nobody waits for a digest."""

    async def run(self) -> None:
        await self._runtime.store.pool.execute(TABLE)
        while True:
            await self._runtime.clock.sleep(EVERY_MS)
            try:
                await self._write_quiet()
            except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
                log_event(LOG, logging.WARNING, "digests wait for PostgreSQL", why=error)

    async def _write_quiet(self) -> None:
        for host in self._owners:
            for partition, owner in sorted(host.owners.items()):
                fold, place = owner.settled, (host.stream, partition)
                if fold is None or self._written.get(place) == fold.position.offset:
                    continue
                offset = fold.position.offset
                if self._seen.get(place) == offset:
                    hashed = state_hash(fold.state)
                    await self._runtime.store.pool.execute(PUT, *place, offset, hashed)
                    self._written[place] = offset
                self._seen[place] = offset
