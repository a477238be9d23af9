"""Exports the journals of `pool`, `session` and `account`; the latter also has prices and closed
months.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from schemas.account import Announce
from schemas.pool import UsageCredited, UsageSliced
from schemas.session import CommandAnswered
from schemas.streams import Stream
from schemas.topics import ACCOUNT, POOL, SESSION
from schemas.units import Ms
from services.exporter.domain.accounts import AccountFacts
from services.exporter.domain.feed import usage_events
from services.exporter.domain.focus import ExportedCharge, charges_of_use
from services.exporter.domain.invoices import charges_of_account
from services.exporter.domain.ranges import ExportRange
from services.exporter.domain.sessions import charges_of_session
from services.exporter.journal_export import LOG, AnotherWriter, JournalExport
from services.exporter.settings import ExporterSettings
from tunery.platform.ports import Runtime
from tunery.runtime.journal.history import read_history
from tunery.runtime.journal.reader import Accepted
from tunery.runtime.telemetry.logs import log_event
from tunery.runtime.watchdog import beat

POLL_MS: Final[Ms] = 250


class ExportHost:
    """Implements `Host`. What it raises is an outage or a price that is missing; it is run again
    and continues from what is stored.
    """

    name = "exporter"

    def __init__(self, runtime: Runtime, settings: ExporterSettings) -> None:
        self._runtime, self._settings = runtime, settings
        self._accounts = AccountFacts()
        self._ready = asyncio.Event()

    async def ready(self) -> None:
        await self._ready.wait()

    async def run(self) -> None:
        """Follow all partitions. Raises BlobsUnavailable, Unavailable, PriceMissing.

        Two processes that overlap, as in an update, meet at one range: the later one begins again.
        """
        while True:
            try:
                await self._follow()
            except AnotherWriter as other:
                log_event(LOG, logging.INFO, "export.begins_again", why=other)
                await asyncio.sleep(POLL_MS / 1_000)

    async def _follow(self) -> None:
        self._accounts = await self._read_accounts()
        account = JournalExport(self._runtime, self._settings, ACCOUNT, self._charges_of_account)
        exports = (
            account,
            self._announced(POOL, self._charges_of_pool),
            self._announced(SESSION, self._charges_of_session),
        )
        try:
            for export in exports:
                await export.open()
            self._ready.set()
            while True:
                for export in exports:  # a quiet journal must not keep the others waiting
                    await export.step(POLL_MS if export is exports[-1] else 0)
        finally:
            for export in exports:
                await export.close()

    def _announced(
        self, stream: Stream, charges_of: Callable[[Accepted], list[ExportedCharge]]
    ) -> JournalExport:
        """Export of a journal of use, which subscribers hear of."""
        announce = partial(self._announce, stream.name)
        return JournalExport(self._runtime, self._settings, stream, charges_of, announce)

    async def _read_accounts(self) -> AccountFacts:
        accounts = AccountFacts()
        async for entry in read_history(self._runtime.log, ACCOUNT):
            beat("working")
            for event in entry.events:
                accounts.fold(entry.entry.key, event)
        return accounts

    def _charges_of_account(self, entry: Accepted) -> list[ExportedCharge]:
        """Fold it, too: what it says may have come after `_read_accounts`."""
        header, charges = entry.header, list[ExportedCharge]()
        for event in entry.events:
            self._accounts.fold(header.key, event)
            charges += charges_of_account(header, event, self._settings.provider)
        return charges

    def _charges_of_pool(self, entry: Accepted) -> list[ExportedCharge]:
        return [
            charge
            for event in entry.events
            if isinstance(event, UsageSliced | UsageCredited)
            for charge in charges_of_use(
                entry.header, event, self._accounts, self._settings.provider
            )
        ]

    def _charges_of_session(self, entry: Accepted) -> list[ExportedCharge]:
        return [
            charge
            for event in entry.events
            if isinstance(event, CommandAnswered)
            for charge in charges_of_session(
                entry.header, event, self._accounts, self._settings.provider
            )
        ]

    async def _announce(
        self, stream: str, partition: int, written: ExportRange, charges: Sequence[ExportedCharge]
    ) -> None:
        """Send the use of a range to the endpoints of tenants that subscribe to it.

        A command that is sent again is dropped by its number. Raises Unavailable, AppendUnknown.
        """
        for tenant, source, event in usage_events(stream, partition, written, charges):
            beat("working")
            if self._accounts.wants_usage(tenant):
                body, sender = Announce(event=event), self._runtime.sender
                await sender.send(ACCOUNT, tenant, tenant, body, source=source)
