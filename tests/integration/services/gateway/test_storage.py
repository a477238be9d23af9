"""Storage on the bill: from a price book and a file on the command line to the invoice."""

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from tests.integration.services.gateway.control_plane import ROWS
from tests.integration.services.gateway.test_budgets import as_json, tunery
from tunery.local.stack import Stack

TENANT: Final = "storage-tenant"
WAIT_S_MAX: Final = 180
VERSION: Final = "2026-01-storage"
BOOK: Final = {
    "version": VERSION,
    "currency": "EUR",
    "effective_from": "2026-01-01",
    "gpu_hour_micro": {"premium": 3_500_000, "standard": 2_600_000, "free": 0},
    "storage_micro_per_gb_month": 10**12,  # a few kilobytes cost something within seconds
}


async def test_money_b3_a_file_is_billed_from_its_upload_to_its_end(
    running: Stack, tmp_path: Path
) -> None:
    book, data = tmp_path / "book.json", tmp_path / "rows.jsonl"
    book.write_text(json.dumps(BOOK))
    data.write_text("\n".join(json.dumps(row) for row in ROWS))
    await tunery(running, "prices", "import", str(book))
    await tunery(running, "tenant", "create", TENANT)
    await tunery(running, "tenant", "plan", TENANT, "--prices", VERSION)
    created = await as_json(running, "key", "create", TENANT, "--name", "ci")
    assert await stored_micro(running) == 0
    file = await as_json(running, "file", "upload", str(data), key=created["key"])
    first = await stored_above(running, 0)
    await stored_above(running, first)
    await tunery(running, "file", "delete", file["id"], key=created["key"])
    assert await stored_still(running) > first


async def stored_above(running: Stack, micro: int) -> int:
    """Cost of storage once it is above `micro`."""
    async with asyncio.timeout(WAIT_S_MAX):
        while True:
            if (now := await stored_micro(running)) > micro:
                return now
            await asyncio.sleep(1)


async def stored_still(running: Stack) -> int:
    """Cost of storage once it no longer grows; while a file is stored it grows each second."""
    async with asyncio.timeout(WAIT_S_MAX):
        while True:
            before = await stored_micro(running)
            await asyncio.sleep(3)
            if await stored_micro(running) == before:
                return before


async def stored_micro(running: Stack) -> int:
    """Cost of storage on the draft of this month, in millionths."""
    month = f"{datetime.now(UTC):%Y-%m}"
    invoice: Any = await as_json(running, "invoice", "show", TENANT, "--period", month)
    lines = [line for line in invoice["lines"] if line["kind"] == "storage"]
    return sum(line["amount_micro"] for line in lines)
