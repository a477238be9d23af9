"""Scripts of the console: by hash from a lock, all of them or none."""

import json
import os
from pathlib import Path

import pytest

from tunery.local import console
from tunery.local.errors import LocalError

#: a program in the place of npm: it installs one file where it is told to, or fails
NPM = """#!/bin/sh
for last; do :; done
case "$FAILS" in 1) echo "EINTEGRITY: sha512 differs" >&2; exit 1;; esac
mkdir -p "$last/node_modules/a" && echo "$@" > "$last/node_modules/a/index.js"
"""


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    program = tmp_path / "npm"
    program.write_text(NPM)
    program.chmod(0o755)
    monkeypatch.setattr(console, "npm", lambda: (str(program),))
    return tmp_path / "installed"


def test_packages_appear_when_all_of_them_are_there(target: Path) -> None:
    console.install_locked(console.PINS, target)
    words = (target / "node_modules/a/index.js").read_text()
    assert words.startswith("ci --ignore-scripts")
    assert (target / "package-lock.json").is_file()
    assert [path.name for path in target.parent.glob(".npm-*")] == []


def test_a_file_with_another_hash_leaves_nothing(
    target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(os.environ, "FAILS", "1")
    with pytest.raises(LocalError, match="EINTEGRITY"):
        console.install_locked(console.PINS, target)
    assert not target.exists()


def test_every_package_has_a_hash_and_no_host() -> None:
    text = (console.PINS / "package-lock.json").read_text()
    packages = json.loads(text)["packages"]
    assert all(each["integrity"].startswith("sha512-") for name, each in packages.items() if name)
    assert "resolved" not in text
    assert "://" not in text
