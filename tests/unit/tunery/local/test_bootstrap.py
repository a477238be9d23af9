"""The bootstrap: what it finds, and when it has nothing to do."""

import json
from pathlib import Path

import pytest

from tunery.local import bootstrap


def program(folder: Path, text: str) -> str:
    path = folder / "uv"
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def test_an_old_uv_and_one_that_does_not_run_are_not_used(tmp_path: Path) -> None:
    assert bootstrap.is_new_enough(program(tmp_path, "echo uv 0.13.8 '(linux)'"))
    assert not bootstrap.is_new_enough(program(tmp_path, "echo uv 0.4.30"))
    assert not bootstrap.is_new_enough(program(tmp_path, "exit 127"))
    assert not bootstrap.is_new_enough(str(tmp_path / "none"))


def test_a_complete_environment_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stamp = tmp_path / "stamp"
    monkeypatch.setattr(bootstrap, "STAMP", stamp)
    monkeypatch.setattr(bootstrap, "find_uv", lambda: pytest.fail("nothing to install"))
    stamp.write_text(json.dumps(bootstrap.wanted_stamps()), encoding="utf-8")
    bootstrap.provide_environment()
    assert bootstrap.present_stamps() == bootstrap.wanted_stamps()


@pytest.mark.parametrize("changed", ["packages", "project"])
def test_a_changed_lock_syncs_and_a_changed_project_only_installs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    commands: list[str] = []

    def run(command: list[str], _env: object = None) -> bool:
        commands.append(command[2])
        return True

    stamp = tmp_path / "stamp"
    stamp.write_text(json.dumps({**bootstrap.wanted_stamps(), changed: "of yesterday"}))
    monkeypatch.setattr(bootstrap, "STAMP", stamp)
    monkeypatch.setattr(bootstrap, "run", run)
    monkeypatch.setattr(bootstrap, "find_uv", lambda: "uv")
    bootstrap.provide_environment()
    assert commands == (["sync", "install"] if changed == "packages" else ["install"])
    assert bootstrap.present_stamps() == bootstrap.wanted_stamps()


def test_without_pip_and_venv_the_fix_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bootstrap, "ROOT", tmp_path)
    monkeypatch.setattr(bootstrap, "has_module", lambda _name: False)
    monkeypatch.setattr(bootstrap, "run", lambda _command, _env=None: False)
    with pytest.raises(SystemExit, match=r"install python3-pip, python3-venv or uv"):
        bootstrap.fetch_uv()
