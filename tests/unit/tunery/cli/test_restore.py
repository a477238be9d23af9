"""`tunery restore` and `tunery backup` as commands: times, refusals, what they print."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from schemas.envelope import Claim
from schemas.topics import ACCOUNT
from tests.unit.tunery.cli.journal.journals import filled
from tunery.cli import restore as restore_command
from tunery.cli.backup import surroundings
from tunery.cli.journal import connection
from tunery.cli.main import main
from tunery.cli.restore import parse_moment
from tunery.local.paths import DataDir
from tunery.runtime.blobs.abstract import Listed
from tunery.runtime.bus.memory import MemoryLog
from tunery.runtime.journal.codec import encode


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1970-01-01T00:00:01Z", 1_000),
        ("1970-01-01T01:00:00.25+01:00", 250),
        ("1970-01-01 00:00:00+00:00", 0),
    ],
)
def test_moments_have_a_zone(text: str, ms: int) -> None:
    assert parse_moment(text) == ms


@pytest.mark.parametrize("text", ["yesterday", "2026-11-29T14:05:00", ""])
def test_moments_without_a_zone_are_refused(text: str) -> None:
    with pytest.raises(click.UsageError, match="2026-11-29T14:05:00Z"):
        parse_moment(text)


def test_command_backs_up_checks_and_restores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = filled()
    log.put(ACCOUNT.journal.name, 0, b"", encode(Claim(owner="billing", nonce="1")))

    @asynccontextmanager
    async def open_log(_: DataDir) -> AsyncIterator[MemoryLog]:
        yield log

    @asynccontextmanager
    async def open_objects(*_: object) -> AsyncIterator[surroundings.ListObjects]:
        yield no_objects

    async def no_objects() -> AsyncIterator[Listed]:
        for name in list[Listed]():
            yield name

    async def rows_in(_: object) -> None:
        return None

    monkeypatch.setattr(connection, "open_log", open_log)
    monkeypatch.setattr(surroundings, "open_objects", open_objects)
    monkeypatch.setattr(restore_command._Installation, "rows_in", rows_in)  # no PostgreSQL here
    backup = str(tmp_path / "backup")
    said = run(tmp_path, "backup", backup).output
    assert "backup 1 up to 20" in said
    again = json.loads(run(tmp_path, "backup", backup, "--json").stdout)
    assert (again["number"], again["segments"], again["objects"]) == (2, 0, 0)
    assert "sound: " in run(tmp_path, "restore", backup, "--check").output
    refused = run(tmp_path, "restore", backup, "--until", "2100-01-01T00:00:00Z", code=1)
    assert "leave --until away" in refused.output
    log = MemoryLog()
    restored: Any = json.loads(run(tmp_path, "restore", backup, "--json").stdout)
    assert restored["records"] == again["records"] == 1
    assert restored["reactions_again"]


def run(folder: Path, *words: str, code: int = 0) -> Result:
    finished = CliRunner().invoke(main, [*words, "--data-dir", str(folder / "data")])
    assert finished.exit_code == code, (finished.output, finished.exception)
    return finished
