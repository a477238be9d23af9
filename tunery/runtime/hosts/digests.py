"""Owners write a hash of their state when they are idle, for `tunery replay --verify`.

A digest is a hash of the whole fold of a partition at a journal offset. It costs one encoding of
the state, so it is written only when a partition has been quiet for a moment.
"""

import logging
from collections.abc import Sequence
from typing import Any, Final

from schemas.units import Ms
from tunery.runtime.hosts.aggregate import AggregateHost
from tunery.runtime.journal.codec import state_hash
from tunery.runtime.ports import Ports
from tunery.runtime.store.abstract import StoreUnavailable, StreamPartition
from tunery.runtime.telemetry.logs import log_event
from tunery.runtime.watchdog import beat

LOG: Final = logging.getLogger("tunery.hosts")
EVERY_MS: Final[Ms] = 2_000


class Digests:
    """Implements `Host` for the owners of one process."""

    name = "digests"

    def __init__(self, runtime: Ports, owners: Sequence[AggregateHost[Any]]) -> None:
        self._store, self._clock, self._owners = runtime.store, runtime.clock, owners
        self._last_seen: dict[StreamPartition, int] = {}  # journal offsets
        self._last_written: dict[StreamPartition, int] = {}

    async def ready(self) -> None:
        """Return at once: no client waits for a digest."""

    async def run(self) -> None:
        """Look at the owners every two seconds; an outage of the store is waited out."""
        while True:
            beat("waiting")
            await self._clock.sleep(EVERY_MS)
            try:
                await self._write_quiet()
            except StoreUnavailable as error:
                log_event(LOG, logging.WARNING, "digests.store_unavailable", why=error)

    async def _write_quiet(self) -> None:
        """Write the digest of each partition that has not moved since the last look."""
        for host in self._owners:
            for number, owner in sorted(host.owners.items()):
                fold, partition = owner.settled, (host.stream, number)
                if fold is None or self._last_written.get(partition) == fold.position.offset:
                    continue
                offset = fold.position.offset
                if self._last_seen.get(partition) == offset:
                    await self._store.put_digest(partition, offset, state_hash(fold.state))
                    self._last_written[partition] = offset
                self._last_seen[partition] = offset
