from pathlib import Path

import pytest

from tests.pythons import commands, interpreters, missing, version_of


def test_missing_interpreters_are_named() -> None:
    assert missing([(3, 11, 2), (3, 12, 4), (3, 13, 0)]) == []
    assert [sentence[:26] for sentence in missing([(3, 11, 7), (3, 12, 1)])] == [
        "no Python 3.11.0 to 3.11.2",
        "no Python 3.13 or newer wa",
    ]
    assert len(missing([])) == 2


@pytest.mark.long
def test_interpreters_are_found_by_their_full_version() -> None:
    for version, path in interpreters().items():
        assert version >= (3, 11)
        assert version_of(path) == version


def test_file_that_does_not_run_is_no_interpreter(tmp_path: Path) -> None:
    shim = tmp_path / "python3.12"
    shim.write_text("#!/bin/sh\nexit 127\n")
    shim.chmod(0o755)
    assert version_of(shim) is None


def test_environment_is_made_from_the_lock_by_hashes_and_with_our_own_package(
    tmp_path: Path,
) -> None:
    venv, sync, own = commands(tmp_path, Path("/usr/bin/python3.11"))
    assert venv[1:] == ["venv", "--quiet", "--python", "/usr/bin/python3.11", str(tmp_path)]
    assert "--require-hashes" in sync
    assert {"--no-deps", "--editable"} <= set(own)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").touch()
    assert [command[1:3] for command in commands(tmp_path, Path("python"))] == [
        ["pip", "sync"],
        ["pip", "install"],
    ]
