"""The S3 server: how it is started, and what it needs of the machine."""

import errno
import os
import subprocess
from pathlib import Path

import pytest

from tunery.local import s3
from tunery.local.errors import LocalError
from tunery.local.secrets import load_or_create


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where versitygw is looked for; nothing is there."""
    target = tmp_path / "cache" / "versitygw"
    monkeypatch.setattr(s3, "versitygw_binary", lambda: target)
    return target


def test_a_server_that_is_not_built_is_named_with_its_fix(program: Path) -> None:
    with pytest.raises(LocalError, match="make setup") as missing:
        s3.built_binary()
    assert str(program) in missing.value.what


def test_an_existing_binary_is_not_built_again(
    program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program.parent.mkdir()
    program.touch()
    monkeypatch.setattr(s3, "go_binary", lambda: pytest.fail("Go is not needed"))
    assert s3.install() == s3.built_binary() == program


def test_without_go_the_error_names_both_fixes(
    program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3, "go_binary", lambda: None)
    with pytest.raises(LocalError, match=r"install Go.*TUNERY_S3_ENDPOINT"):
        s3.install()


def test_a_failed_build_leaves_no_file_and_shows_its_last_output(
    program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 1, "", "x" * 10_000 + " no network")

    monkeypatch.setattr(s3, "go_binary", lambda: "/usr/bin/go")
    monkeypatch.setattr(subprocess, "run", fail)
    with pytest.raises(LocalError, match="no network") as failed:
        s3.install()
    assert len(str(failed.value)) < 1_200
    assert list(program.parent.iterdir()) == []


def test_keys_are_not_on_the_command_line_and_only_this_machine_is_served(
    program: Path, tmp_path: Path
) -> None:
    program.parent.mkdir()
    program.touch()
    keys = load_or_create(tmp_path / "secrets.json")
    child = s3.child(tmp_path / "s3", 7_070, keys, "bucket")
    secret = keys.s3_secret_key
    assert child.env == {"ROOT_ACCESS_KEY": keys.s3_access_key, "ROOT_SECRET_KEY": secret}
    assert secret not in child.argv
    assert "127.0.0.1:7070" in child.argv


def test_a_file_system_without_attributes_is_refused_and_the_probe_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOTSUP, "Operation not supported")

    monkeypatch.setattr(os, "setxattr", refuse)
    with pytest.raises(LocalError, match="no extended attributes"):
        s3.check_attributes(tmp_path)
    assert list(tmp_path.iterdir()) == []
