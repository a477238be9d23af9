"""Secrets of a stack: made once, for their owner alone, never replaced."""

import hashlib
import json
import stat
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from tunery.local import secrets
from tunery.local.errors import LocalError


def test_secrets_are_made_once_for_their_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "secrets.json"
    first = secrets.load_or_create(file)
    assert secrets.load_or_create(file) == first
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_unreadable_secrets_are_named_and_not_replaced(tmp_path: Path) -> None:
    file = tmp_path / "secrets.json"
    file.write_text("{")
    with pytest.raises(LocalError, match="does not hold valid secrets"):
        secrets.load_or_create(file)
    assert file.read_text() == "{"


NAMES = (
    "admin_key",
    "postgres_password",
    "s3_access_key",
    "s3_secret_key",
    "valkey_password",
    "kafka_secret",
    "command_secret",
)
WHOLE = {**dict.fromkeys(NAMES, "k"), "commands_signed_since": "7"}


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"[]", b"{}", b'{"admin_key": "k"}', b'"text"', b"\xff\xfe", b"[" * 100_000),
        *(
            json.dumps(WHOLE | {"valkey_password": wrong}).encode()
            for wrong in (7, None, "", "k\xe9")
        ),
        json.dumps(WHOLE | {"commands_signed_since": "yesterday"}).encode(),
    ],
)
def test_a_file_that_lacks_secrets_is_refused_with_its_path(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "secrets.json"
    file.write_bytes(content)
    with pytest.raises(LocalError) as refused:
        secrets.load(file)
    assert str(file) in refused.value.what
    assert str(tmp_path) in refused.value.fix


@pytest.mark.parametrize(
    "error", [PermissionError(13, "Permission denied"), OSError(5, "I/O error")]
)
def test_secrets_that_cannot_be_read_are_named_with_the_cause_and_not_replaced(
    tmp_path: Path, error: OSError, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "secrets.json"
    secrets.load_or_create(file)
    before = file.read_bytes()
    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_text", raising(error))
        for read in (secrets.load, secrets.load_or_create):
            with pytest.raises(LocalError) as refused:
                read(file)
            assert f"{file} cannot be read: {error.strerror}" in refused.value.what
    assert file.read_bytes() == before


def raising(error: Exception) -> Callable[..., Any]:
    def fail(*_arguments: object, **_options: object) -> None:
        raise error

    return fail


def test_a_missing_file_differs_from_a_bad_one(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        secrets.load(tmp_path / "secrets.json")


def test_an_unknown_secret_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "secrets.json"
    created = asdict(secrets.load_or_create(file))
    file.write_text(json.dumps({**created, "more": "x"}))
    with pytest.raises(LocalError, match="does not hold valid secrets"):
        secrets.load(file)


def test_a_part_that_a_crash_left_does_not_matter(tmp_path: Path) -> None:
    (tmp_path / "secrets.part").write_text("{torn")
    (tmp_path / "secrets.part").chmod(0o644)
    file = tmp_path / "secrets.json"
    created = secrets.load_or_create(file)
    assert secrets.load(file) == created
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["secrets.json"]


def test_secrets_of_two_stacks_share_no_value(tmp_path: Path) -> None:
    left, right = (asdict(secrets.load_or_create(tmp_path / name)) for name in ("a.json", "b.json"))
    for stack in (left, right):
        del stack["commands_signed_since"]  # no secret
    assert set(left.values()).isdisjoint(right.values())
    assert len(set(left.values())) == len(left)


def test_services_compare_the_hash_of_the_admin_key(tmp_path: Path) -> None:
    created = secrets.load_or_create(tmp_path / "secrets.json")
    assert created.admin_key.startswith("sk-tunery-")
    assert created.admin_key_sha256 == hashlib.sha256(created.admin_key.encode()).hexdigest()


@pytest.mark.parametrize(
    "unknown",
    [
        ("kafka_secret", "command_secret", "commands_signed_since"),
        ("command_secret", "commands_signed_since"),
    ],
)
def test_a_file_of_an_earlier_version_is_completed_when_the_stack_starts(
    tmp_path: Path, unknown: tuple[str, ...]
) -> None:
    """Commands that wait on its log have no signature, and count: they are older than the keys."""
    file = tmp_path / "secrets.json"
    earlier = {name: value for name, value in WHOLE.items() if name not in unknown}
    file.write_text(json.dumps(earlier))
    with pytest.raises(LocalError, match="of an earlier version") as refused:
        secrets.load(file)
    assert "`tunery up`" in refused.value.fix
    begun_ms = time.time_ns() // 1_000_000
    completed = secrets.load_or_create(file)
    assert asdict(completed) == earlier | {name: getattr(completed, name) for name in unknown}
    assert secrets.load(file) == completed
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    keys = completed.sender_keys("gateway")
    assert keys.signed_since >= begun_ms
    assert keys.sender_of("account", b"{}", begun_ms - 1) is None
