"""`tunery s3 unnamed`: what no record names, what stays, and when nothing can be said."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from schemas.dataset import EraseUnnamed
from schemas.envelope import Envelope
from schemas.topics import DATASET
from schemas.units import DAY_MS
from tests.unit.tunery.cli.journal.journals import RECORDED, Front, change, filled
from tunery.cli import _unnamed
from tunery.cli._unnamed import find_unnamed
from tunery.cli.backup import surroundings
from tunery.cli.main import main
from tunery.local.errors import LocalError
from tunery.platform.connections import UNCHECKED
from tunery.runtime.blobs.memory import MemoryBlobs
from tunery.runtime.bus.memory import MemoryLog

HISTORIES = ("dataset.files_and_preparations", "dataset.uploads_that_end")
PARTITION = RECORDED[HISTORIES[0]].partition
OLD, NEW = 0, 2**42
ORPHANS = (
    "t/acme/checkpoints/ftjob-1/1/aa",
    "t/acme/files/file-none",
    "t/acme/uploads/upload_1/part_none",
)


@pytest.fixture
def log() -> MemoryLog:
    return filled(HISTORIES[0])


def objects(*keys: str, at: int = OLD) -> MemoryBlobs:
    blobs = MemoryBlobs()
    blobs.bodies = dict.fromkeys(keys, b"12345")
    blobs.stored_at = dict.fromkeys(keys, at)
    return blobs


def lister(blobs: MemoryBlobs) -> surroundings.ListObjects:
    return lambda: blobs.listed("")


async def unnamed(log: MemoryLog, *keys: str, at: int = OLD) -> list[str]:
    inventory = await find_unnamed(log, lister(objects(*keys, at=at)), DAY_MS)
    return [each.key for each in inventory.objects]


async def test_only_what_no_record_names_and_is_old_is_found(log: MemoryLog) -> None:
    named = "t/acme/files/1"
    kept = ("t/acme/exports/usage/2026-11/a.csv", "snapshots/job/1", "benchmarks/x/y/z")
    assert await unnamed(log, named, *kept, *ORPHANS) == [*ORPHANS]
    assert await unnamed(log, f"{named}.sealed", f"{ORPHANS[0]}.sealed") == [ORPHANS[0]]
    assert await unnamed(log, *ORPHANS, at=DAY_MS) == []


async def test_parts_are_named_by_their_ids() -> None:
    log = filled(HISTORIES[1])
    part = "t/acme/uploads/upload_1/part_1"
    assert await unnamed(log, part, ORPHANS[2]) == [ORPHANS[2]]


async def test_what_a_waiting_command_names_is_named(log: MemoryLog) -> None:
    body = f'{{"blob":"{ORPHANS[0]}"}}'.encode()
    log.put(DATASET.commands.name, PARTITION, b"acme", body)
    assert await unnamed(log, *ORPHANS) == [*ORPHANS[1:]]


async def test_objects_of_tenants_that_the_log_does_not_know_stay(log: MemoryLog) -> None:
    strange = "t/globex/files/1"
    inventory = await find_unnamed(log, lister(objects(strange)), DAY_MS)
    assert (inventory.objects, [each.key for each in inventory.foreign]) == ([], [strange])


async def test_a_log_that_is_not_complete_is_refused(log: MemoryLog) -> None:
    change(log, 3, b"acme", b"acmf", RECORDED[HISTORIES[0]])
    with pytest.raises(LocalError, match="log is not complete"):
        await unnamed(log, *ORPHANS)


@pytest.fixture
def storage(log: MemoryLog, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """`tunery s3 unnamed` over the log and these orphans."""
    Front(monkeypatch, log)
    monkeypatch.setenv("TUNERY_COMMAND_KEYS", UNCHECKED)

    @asynccontextmanager
    async def open_objects(*_: object) -> AsyncIterator[surroundings.ListObjects]:
        yield lister(objects(*ORPHANS, "t/acme/files/1"))

    monkeypatch.setattr(surroundings, "open_objects", open_objects)

    def run(*words: str) -> str:
        done = CliRunner().invoke(main, ["s3", "unnamed", *words])
        assert done.exit_code == 0, (done.output, done.exception)
        return done.stdout

    return run


def test_command_lists_first_and_erases_by_decisions_on_the_log(
    log: MemoryLog, storage: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = storage()
    assert "checkpoints: 1 objects, 5 bytes" in said
    assert "3 objects; `tunery s3 unnamed --erase` erases them" in said
    assert json.loads(storage("--json"))["commands"] == 0
    sent = log.topics[DATASET.commands.name][PARTITION].records
    assert not sent
    monkeypatch.setattr(_unnamed, "COMMAND_BLOBS_MAX", 2)
    assert "3 objects are to be erased, by 2 commands" in storage("--erase")
    bodies = [
        msgspec.json.decode(
            msgspec.json.decode(record.value, type=Envelope).body, type=EraseUnnamed
        )
        for record in sent
    ]
    assert [blob for body in bodies for blob in body.blobs] == [*ORPHANS]
    assert "3 objects" in storage("--older-than", "365")  # no decision names what it lets go
