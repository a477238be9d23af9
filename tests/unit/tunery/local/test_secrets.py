"""Secrets of a stack: made once, for their owner alone, never replaced."""

import hashlib
import json
import stat
from dataclasses import asdict
from pathlib import Path

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


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"admin_key": "k"}', '"text"'])
def test_a_file_that_lacks_secrets_is_refused_with_its_path(tmp_path: Path, content: str) -> None:
    file = tmp_path / "secrets.json"
    file.write_text(content)
    with pytest.raises(LocalError) as refused:
        secrets.load(file)
    assert str(file) in refused.value.what
    assert str(tmp_path) in refused.value.fix


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
    assert set(left.values()).isdisjoint(right.values())
    assert len(set(left.values())) == len(left)


def test_services_compare_the_hash_of_the_admin_key(tmp_path: Path) -> None:
    created = secrets.load_or_create(tmp_path / "secrets.json")
    assert created.admin_key.startswith("sk-tunery-")
    assert created.admin_key_sha256 == hashlib.sha256(created.admin_key.encode()).hexdigest()
