"""`tunery encryption`: what it changes, lists and refuses."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.unit.tunery.platform.seal.transit_server import transit_server
from tunery.cli.main import main
from tunery.local.paths import DataDir
from tunery.platform.seal.directory import DirectoryKeyStore
from tunery.platform.seal.roots import Roots
from tunery.platform.seal.sealer import Sealer


@pytest.fixture
def folders(tmp_path: Path) -> DataDir:
    return DataDir(tmp_path)


def printed(folders: DataDir, *arguments: str, code: int = 0) -> str:
    where = ("--data-dir", str(folders.root))
    done = CliRunner().invoke(main, ["encryption", *arguments, *where], env={})
    assert done.exit_code == code, done.output
    return done.output


def answered(folders: DataDir, *arguments: str, code: int = 0) -> Any:
    return json.loads(printed(folders, *arguments, "--json", code=code))


def sealer(folders: DataDir) -> Sealer:
    return Sealer(DirectoryKeyStore(folders.keystore, Roots(folders.roots)))


def test_keys_in_the_clear_are_wrapped_and_listed(folders: DataDir) -> None:
    sealed = Sealer(DirectoryKeyStore(folders.keystore)).seal("acme", "text", "name")
    assert "none: in the clear" in printed(folders, "status")
    printed(folders, "wrap")
    (entry,) = answered(folders, "status")["tenants"]
    assert entry == {"tenant": "acme", "root": "default", "versions": [sealed.key_id]}
    assert sealer(folders).open(sealed, "name") == "text"


def test_both_kinds_of_keys_are_rotated(folders: DataDir) -> None:
    Sealer(DirectoryKeyStore(folders.keystore)).seal("other", "x", "name")
    printed(folders, "wrap")
    sealed = sealer(folders).seal("acme", "text", "name")
    assert "encrypts from now on, version 2 of acme" in printed(folders, "rotate-key", "acme")
    newer = sealer(folders).seal("acme", "newer", "name")
    assert sealed.key_id != newer.key_id
    assert answered(folders, "rotate-root") == {"wrapped": ["acme", "other"], "failed": {}}
    assert "keys of 2 tenants" in printed(folders, "rotate-root", "--forget")
    assert [sealer(folders).open(field, "name") for field in (sealed, newer)] == ["text", "newer"]
    assert "there is no key of nobody" in printed(folders, "rotate-key", "nobody", code=1)


def test_a_tenant_gets_a_root_of_its_own_in_vault(folders: DataDir) -> None:
    sealed = Sealer(DirectoryKeyStore(folders.keystore)).seal("acme", "text", "name")
    (folders.root / "token").write_text("token")
    with transit_server() as vault:
        printed(folders, "wrap")
        words = ("--key", "tunery", "--token-file", str(folders.root / "token"))
        printed(folders, "add-vault", "acme-vault", "--address", vault.address, *words)
        printed(folders, "set-root", "acme", "acme-vault")
        printed(folders, "set-root", "late", "acme-vault")
        roots = {entry["tenant"]: entry["root"] for entry in answered(folders, "status")["tenants"]}
        assert roots == {"acme": "acme-vault", "late": "acme-vault"}
        assert sealer(folders).open(sealed, "name") == "text"
        assert answered(folders, "rotate-root", "acme-vault")["wrapped"] == ["acme", "late"]
        assert len(vault.keys["tunery"]) == 2
        vault.tokens.clear()
        failed = answered(folders, "wrap", code=1)["failed"]
        assert "permission denied" in failed["acme"]
        refused = printed(folders, "add-vault", "b", "--address", vault.address, *words, code=1)
        assert "permission denied" in refused
    assert "no name of a root" in printed(folders, "add-root", "../x", code=1)


def test_names_are_used_once_and_folders_must_exist(folders: DataDir) -> None:
    assert "there is no key store" in printed(folders, "status", code=1)
    DirectoryKeyStore(folders.keystore).get("acme")
    printed(folders, "add-root", "archive")
    assert "choose another name" in printed(folders, "add-root", "archive", code=1)
    assert answered(folders, "status")["roots"] == ["archive"]
