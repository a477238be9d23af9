"""Folders of this machine follow the environment; a data directory is for its owner."""

import os
import stat
from pathlib import Path

import pytest

from tunery.local.paths import DataDir, cache_dir, default_data_dir


def test_folders_follow_the_environment() -> None:
    assert default_data_dir({"TUNERY_DATA_DIR": "/d"}) == Path("/d")
    assert default_data_dir({"XDG_DATA_HOME": "/x"}) == Path("/x/tunery")
    assert cache_dir({"XDG_CACHE_HOME": "/c"}) == Path("/c/tunery")


def test_our_own_variables_count_before_those_of_xdg() -> None:
    environ = {"TUNERY_CACHE_DIR": "/own", "XDG_CACHE_HOME": "/c", "XDG_DATA_HOME": "/x"}
    assert cache_dir(environ) == Path("/own")
    assert default_data_dir({**environ, "TUNERY_DATA_DIR": "/d"}) == Path("/d")


@pytest.mark.parametrize("environ", [{}, {"TUNERY_DATA_DIR": "", "XDG_DATA_HOME": ""}])
def test_empty_variables_count_as_unset(environ: dict[str, str]) -> None:
    assert default_data_dir(environ) == Path.home() / ".local" / "share" / "tunery"
    assert cache_dir({"TUNERY_CACHE_DIR": ""}) == Path.home() / ".cache" / "tunery"


def test_a_relative_folder_and_a_tilde_become_absolute() -> None:
    assert default_data_dir({"TUNERY_DATA_DIR": "data"}) == Path.cwd() / "data"
    assert cache_dir({"TUNERY_CACHE_DIR": "~/c"}) == Path.home() / "c"


def test_folders_are_for_their_owner_alone_also_when_they_existed(tmp_path: Path) -> None:
    folders = DataDir(tmp_path / "a" / "data")
    folders.logs.mkdir(parents=True)
    folders.logs.chmod(0o777)
    folders.create()
    folders.create()
    root_mode = 0o711 if os.geteuid() == 0 else 0o700
    assert stat.S_IMODE(folders.root.stat().st_mode) == root_mode
    inside = [path for path in folders.root.iterdir() if path.is_dir()]
    assert {path.name for path in inside} == {
        *("logs", "run", "keystore", "roots", "signing", "kafka", "valkey", "s3")
    }
    assert {stat.S_IMODE(path.stat().st_mode) for path in inside} == {0o700}


def test_each_process_has_a_log_of_its_own() -> None:
    assert DataDir(Path("/d")).log("kafka") == Path("/d/logs/kafka.log")
