"""Price books: ours is there, wrong ones are named, and each is imported once."""

import asyncio
import shutil
from contextlib import suppress
from pathlib import Path

import pytest
from msgspec.structs import replace

from schemas.account import ImportPrices
from services.billing.adapters.prices import PriceImport, read_books, read_imports
from services.billing.app import ACCOUNTS, TENANTS
from tunery.billing.lines import PriceMissing
from tunery.plan.price import PRICES_DIR
from tunery.platform.memory_servers import MemoryServers, memory_servers
from tunery.runtime import watchdog
from tunery.runtime.hosts.aggregate import AggregateHost
from tunery.runtime.hosts.projector import Projector
from tunery.runtime.tasks import stop_tasks

OURS = PRICES_DIR / "2026-11.json"


def test_our_book_has_a_price_for_every_lane() -> None:
    books = read_books()
    assert set(books["2026-11"].gpu_hour_micro) == {"premium", "standard", "free"}
    assert all(version == book.version for version, book in books.items())


def test_a_book_under_another_name_is_named(tmp_path: Path) -> None:
    shutil.copy(OURS, tmp_path / "2027-01.json")
    with pytest.raises(PriceMissing, match=r"rename it to 2026-11\.json"):
        read_books(tmp_path)


def test_a_broken_book_and_an_empty_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(PriceMissing, match="no price book"):
        read_books(tmp_path)
    (tmp_path / "x.json").write_text('{"version": 1}')
    with pytest.raises(PriceMissing, match=r"x\.json cannot be read.*version"):
        read_books(tmp_path)


class CaughtUp:
    """Implements `Host`: a projector that has read everything."""

    name = "tenants"

    async def ready(self) -> None:
        """At once."""

    async def run(self) -> None:
        await watchdog.wait_forever()


async def imported(here: MemoryServers, *commands: ImportPrices) -> dict[str, int]:
    """Prices of a standard GPU-hour on the log, after billing has started with these books."""
    runtime = here.runtime("billing")
    tenants = Projector(runtime, TENANTS)
    host = PriceImport(runtime, tenants, commands)
    hosts = (AggregateHost(runtime, ACCOUNTS), tenants, host)
    tasks = [asyncio.create_task(host.run()) for host in hosts]
    try:
        async with asyncio.timeout(180):
            for started in hosts:
                await started.ready()
            while not (rows := await runtime.store.rows("prices")):  # noqa: ASYNC110  # other tasks write it
                await asyncio.sleep(0.01)
    finally:
        for task in tasks:
            task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.gather(*tasks)
    return {row["version"]: row["book"]["gpu_hour_micro"]["standard"] for row in rows}


async def test_money_b3_a_file_that_was_edited_re_prices_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    here, (ours,) = await memory_servers(), read_imports()
    first = await imported(here, ours)
    assert first == {"2026-11": 2_400_000}
    dearer = replace(ours.book, gpu_hour_micro={"standard": 9_900_000})
    assert await imported(here, replace(ours, book=dearer, sha256="b" * 64)) == first
    assert "prices.refused" in caplog.text


async def test_a_host_that_has_imported_all_books_reports_that_it_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watchdog, "REPORT_EVERY_MS", 10)
    runtime = (await memory_servers()).runtime("billing")
    host, watch = PriceImport(runtime, CaughtUp(), ()), watchdog.HostWatch("price import")
    task = asyncio.create_task(host.run(), context=watch.context())
    await host.ready()
    for _ in range(3):
        await asyncio.sleep(0.05)
        assert watch.look(0) == []
    await stop_tasks((task,))
