"""`tunery backup` and `tunery restore` with a bucket of a real object storage."""

import json
from typing import Any

import pytest

from schemas.envelope import Claim
from schemas.streams import PARTITIONS
from schemas.topics import ACCOUNT, TOPICS
from tests.commands import run_tunery
from tests.stacks import temporary_data_dir
from tunery.cli.journal.connection import open_log
from tunery.local.stack import Stack, stack
from tunery.runtime.journal.codec import encode

ADDRESS = "s3://backups/of/tunery"
BACKUPS = 3


async def run(where: Stack, *words: str) -> Any:
    out, _ = await run_tunery(where.folders.root, *words, "--json")
    return json.loads(out)


@pytest.mark.timeout(600)
async def test_bucket_holds_backups_and_all_of_them_are_read_again() -> None:
    with temporary_data_dir() as folder:
        async with stack(folder, environ={}) as running:
            async with open_log(running.folders) as log:
                await log.create(TOPICS, PARTITIONS)
                for number in range(BACKUPS):
                    claim = encode(Claim(owner="billing", nonce=str(number)))
                    await log.send(ACCOUNT.journal.name, b"", claim, number)
                    report = await run(running, "backup", ADDRESS, "--keep", "1")
            assert (report["number"], report["records"]) == (BACKUPS, BACKUPS)
            assert report["segments"] == BACKUPS
            assert (await run(running, "restore", ADDRESS, "--check"))["records"] == BACKUPS
            _, said = await run_tunery(folder, "backup", f"s3://{running.s3_bucket}", code=1)
            assert b"choose another bucket" in said
