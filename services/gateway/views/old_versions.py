"""Drops the rows of earlier versions once no process reads them."""

import logging
from collections.abc import Set
from typing import Final

from schemas.units import Ms
from services.gateway.views.reading import behind
from tunery.platform.store.generations import drop_schema, unused_schemas
from tunery.platform.store.postgres import PostgresStore, named_errors
from tunery.runtime.clock import Clock
from tunery.runtime.hosts.periodic import PeriodicHost
from tunery.runtime.telemetry.logs import log_event
from tunery.runtime.watchdog import beat

LOG: Final = logging.getLogger("tunery.gateway")
EVERY_MS: Final[Ms] = 600_000


class OldVersions(PeriodicHost):
    """Implements `Host`. A schema is dropped if no process is connected to it in two rounds: a
    process finds its rows after a restart.
    """

    name = "old versions of views"
    every_ms = EVERY_MS

    def __init__(self, store: PostgresStore, clock: Clock) -> None:
        super().__init__(clock)
        self._store = store
        self._unused: Set[str] = frozenset()

    async def work(self) -> None:
        """Look at the schemas once. Raises StoreUnavailable."""
        if await behind(self._store):
            return
        with named_errors():
            unused = await unused_schemas(self._store.pool, self._store.schema)
            for schema in self._unused & set(unused):
                beat("working")
                await drop_schema(self._store.pool, schema)
                log_event(LOG, logging.INFO, "views.version_dropped", schema=schema)
        self._unused = frozenset(unused) - self._unused
