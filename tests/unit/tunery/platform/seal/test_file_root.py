import json
import subprocess
import sys
from pathlib import Path

import pytest

from tunery.platform.seal.abstract import KeyStoreBroken, RootRefused
from tunery.platform.seal.file_root import FileRoot, create_file_root

SECRET = bytes(range(32))


def test_it_is_made_once_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "roots" / "default.json"
    assert create_file_root(path)
    stored = path.read_bytes()
    assert not create_file_root(path)
    assert path.read_bytes() == stored
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_what_is_wrapped_unwraps_in_its_context_alone(tmp_path: Path) -> None:
    create_file_root(tmp_path / "a")
    create_file_root(tmp_path / "b")
    root = FileRoot(tmp_path / "a")
    wrapped = root.wrap(SECRET, b"acme.1")
    assert FileRoot(tmp_path / "a").unwrap(wrapped, b"acme.1") == SECRET
    assert root.wrap(SECRET, b"acme.1") != wrapped
    with pytest.raises(RootRefused, match="does not open"):
        root.unwrap(wrapped, b"other.1")
    with pytest.raises(RootRefused, match="does not open"):
        root.unwrap(wrapped[:-4], b"acme.1")
    with pytest.raises(RootRefused, match="no version"):
        FileRoot(tmp_path / "b").unwrap(wrapped, b"acme.1")
    with pytest.raises(RootRefused, match="no version"):
        root.unwrap("vault:v1:AAAA", b"acme.1")


def test_earlier_versions_unwrap_until_they_are_forgotten(tmp_path: Path) -> None:
    create_file_root(tmp_path / "a")
    root, other_process = FileRoot(tmp_path / "a"), FileRoot(tmp_path / "a")
    first = other_process.wrap(SECRET, b"x")
    root.rotate()
    second = other_process.wrap(SECRET, b"x")
    assert first.split(":")[1] != second.split(":")[1]
    assert other_process.unwrap(first, b"x") == other_process.unwrap(second, b"x") == SECRET
    root.forget()
    assert other_process.unwrap(second, b"x") == SECRET
    with pytest.raises(RootRefused, match="no version"):
        other_process.unwrap(first, b"x")
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o600


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "default.json"
    with pytest.raises(KeyStoreBroken, match=r"default\.json cannot be read"):
        FileRoot(path).wrap(SECRET, b"")
    for versions in ([], [{"id": "a", "secret": "AAAA"}], [{"id": "a"}], 3):
        path.write_text(json.dumps({"kind": "file", "versions": versions}))
        with pytest.raises(KeyStoreBroken, match=r"default\.json is no root key"):
            FileRoot(path).wrap(SECRET, b"")


ROTATE = """
import sys
from pathlib import Path
from tunery.platform.seal.file_root import FileRoot
for _ in range(10):
    FileRoot(Path(sys.argv[1])).rotate()
"""


def test_no_version_is_lost_when_processes_rotate_at_once(tmp_path: Path) -> None:
    path = tmp_path / "default.json"
    create_file_root(path)
    wrapped = FileRoot(path).wrap(SECRET, b"x")
    children = [subprocess.Popen([sys.executable, "-c", ROTATE, str(path)]) for _ in range(2)]
    assert [child.wait(timeout=180) for child in children] == [0, 0]
    assert len(json.loads(path.read_bytes())["versions"]) == 21
    assert FileRoot(path).unwrap(wrapped, b"x") == SECRET
