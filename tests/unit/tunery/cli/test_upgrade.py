"""`tunery upgrade`: what it prints, and what it refuses."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.unit.tunery.runtime.tools.test_upgrade import process, state
from tunery.cli import upgrade
from tunery.cli.main import main
from tunery.runtime.tools.upgrade import UpgradeState


def invoke(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, known: UpgradeState, *words: str
) -> Result:
    async def read_state(*_: Any) -> UpgradeState:
        return known

    monkeypatch.setattr(upgrade, "read_state", read_state)
    return CliRunner().invoke(main, ["upgrade", *words, "--data-dir", str(tmp_path)])


def test_status_names_processes_that_block_the_raise(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    known = state(process(1))
    text = invoke(monkeypatch, tmp_path, known, "status").output
    assert "log: level 1; this release reads up to level 2" in text
    assert "waited for: billing@a:1: release 0.1.0 reads up to level 1" in text
    printed = json.loads(invoke(monkeypatch, tmp_path, known, "status", "--json").output)
    assert printed["can_finalize"] is False
    assert printed["processes"][0]["process"] == "billing@a:1"


def test_status_says_the_next_step(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    text = invoke(monkeypatch, tmp_path, state(process(2)), "status").output
    assert "next: `tunery upgrade finalize`" in text
    assert "waited for" not in text


def test_finalize_is_refused_with_names(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    done = invoke(monkeypatch, tmp_path, state(process(1)), "finalize")
    assert done.exit_code == 1
    assert "billing@a:1: release 0.1.0 reads up to level 1" in done.output


def test_nothing_is_left_to_finalize(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    finished = UpgradeState(level=2, levels={"job": 2}, readable=2, processes=(), missing=())
    done = invoke(monkeypatch, tmp_path, finished, "finalize")
    assert done.output == "the log is at level 2: there is nothing to finish\n"
