"""The user that PostgreSQL runs as, and which folders that user may enter."""

import os
import pwd
from pathlib import Path

import pytest

from tunery.local import identity
from tunery.local.errors import LocalError
from tunery.local.identity import Identity

UNPRIVILEGED = Identity(65_534, 65_534)


@pytest.fixture
def closed(tmp_path: Path) -> Path:
    """A folder below one that only its owner may enter (pytest's own is closed as well)."""
    folder = tmp_path / "home" / "data"
    folder.mkdir(parents=True)
    (tmp_path / "home").chmod(0o700)
    return folder


def test_a_folder_below_a_closed_one_is_out_of_reach(closed: Path) -> None:
    assert not identity.may_traverse(closed, UNPRIVILEGED)
    assert identity.may_traverse(Path("/usr"), UNPRIVILEGED)


def test_a_folder_that_does_not_exist_yet_is_no_obstacle(tmp_path: Path) -> None:
    assert identity.may_traverse(Path("/usr/no/such/folder"), UNPRIVILEGED)
    (tmp_path / "closed").mkdir(mode=0o700)
    assert not identity.may_traverse(tmp_path / "closed" / "later", UNPRIVILEGED)


@pytest.mark.parametrize(("mode", "allowed"), [(0o100, True), (0o077, False)])
def test_for_an_owner_only_the_owners_bits_count(mode: int, allowed: bool, tmp_path: Path) -> None:
    folder = tmp_path / "own"
    folder.mkdir()
    owner = Identity(folder.stat().st_uid, folder.stat().st_gid)
    assert identity.may_traverse(folder, owner)
    folder.chmod(mode)
    assert identity.may_traverse(folder, owner) is allowed
    folder.chmod(0o700)


def test_only_root_needs_another_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert identity.unprivileged() is None


def test_root_without_such_a_user_gets_a_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise KeyError(name)

    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(pwd, "getpwnam", absent)
    with pytest.raises(LocalError, match="no user `nobody`"):
        identity.unprivileged()
