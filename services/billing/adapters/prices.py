"""Price books from files, and their way to the log."""

import asyncio
import logging
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec

from schemas.account import PRICES_PARTITION, ImportPrices
from schemas.billing import PriceBook
from schemas.streams import GLOBAL
from schemas.topics import ACCOUNT
from tunery.billing.books import refuse_book
from tunery.billing.lines import PriceMissing
from tunery.plan.price import PRICES_DIR, SUFFIX, PriceBookError, load_price_books
from tunery.platform.ports import Runtime
from tunery.platform.settings import read_files
from tunery.runtime.hosts.abstract import Host
from tunery.runtime.telemetry.logs import log_event
from tunery.runtime.watchdog import wait_forever

LOG: Final = logging.getLogger(__name__)


def read_books(folder: Path | None = None) -> Mapping[str, PriceBook]:
    """All price books of a folder by version, ours where none is given.

    Raises PriceMissing, which names the file and what is wrong; SettingsError.
    """
    return {command.book.version: command.book for command in read_imports(folder)}


def read_imports(folder: Path | None = None) -> tuple[ImportPrices, ...]:
    """A command for each price book of a folder. Raises PriceMissing, SettingsError."""
    folder = folder or PRICES_DIR
    contents = read_files(folder, SUFFIX)
    try:
        books = load_price_books(contents)
    except PriceBookError as error:
        raise PriceMissing(f"{folder}: {error}") from error
    return tuple(
        ImportPrices(book=book, sha256=sha256(contents[f"{version}{SUFFIX}"]).hexdigest())
        for version, book in sorted(books.items())
    )


class PriceImport:
    """Implements `Host`: imports the price books of the folder that are not on the log yet.

    A file that was edited after its import changes nothing, and is reported.
    """

    name = "price import"

    def __init__(self, runtime: Runtime, prices: Host, imports: tuple[ImportPrices, ...]) -> None:
        self._runtime, self._prices, self._imports = runtime, prices, imports
        self._ready = asyncio.Event()

    async def ready(self) -> None:
        await self._ready.wait()

    async def run(self) -> None:
        """Import once, and wait. Raises Unavailable, StoreUnavailable."""
        await self._prices.ready()
        known = {
            row["version"]: msgspec.convert(row["book"], PriceBook)
            for row in await self._runtime.store.rows("prices")
        }
        for command in self._imports:
            if command.book == known.get(command.book.version):
                continue
            if refusal := refuse_book(command.book, known):
                log_event(
                    LOG,
                    logging.ERROR,
                    "prices.refused",
                    version=command.book.version,
                    field=refusal.field,
                    code=refusal.reason.code,
                    params=refusal.reason.params,
                )
                continue
            known[command.book.version] = command.book
            await self._runtime.sender.send(
                ACCOUNT, GLOBAL, GLOBAL, command, partition=PRICES_PARTITION
            )
        self._ready.set()
        await wait_forever()
