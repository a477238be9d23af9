"""Fixtures of tests of backups."""

from pathlib import Path

import pytest

from tests.unit.tunery.cli.backup.homes import Home
from tests.unit.tunery.cli.journal.journals import filled
from tests.unit.tunery.cli.journal.living import lived, running
from tunery.runtime.bus.memory import MemoryLog


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


@pytest.fixture
async def busy() -> MemoryLog:
    """An installation that is at rest after some work."""
    log = filled()
    async with running(log):
        await lived(log)
    return log
