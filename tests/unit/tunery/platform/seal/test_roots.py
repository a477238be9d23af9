from pathlib import Path

import pytest

from tunery.platform.seal.abstract import KeyStoreBroken
from tunery.platform.seal.file_root import FileRoot
from tunery.platform.seal.roots import Roots, create_root, describe_vault, open_root, root_file
from tunery.platform.seal.vault_root import VaultRoot, VaultSettings


def test_roots_are_files_of_a_folder_by_name(tmp_path: Path) -> None:
    folder = tmp_path / "roots"
    settings = VaultSettings("https://vault.example:8200", "tunery", "/etc/tunery/token")
    assert create_root(folder)
    assert describe_vault(folder, "acme", settings)
    assert not create_root(folder, "acme")
    assert not describe_vault(folder, "default", settings)
    roots = Roots(folder)
    assert roots.names() == ["acme", "default"]
    assert isinstance(roots.root("default"), FileRoot)
    assert isinstance(roots.root("acme"), VaultRoot)
    assert roots.root("acme") is roots.root("acme")
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}


def test_a_root_whose_file_was_replaced_is_opened_anew(tmp_path: Path) -> None:
    create_root(tmp_path)
    roots = Roots(tmp_path)
    before = roots.root("default")
    root_file(tmp_path, "default").unlink()
    describe_vault(tmp_path, "default", VaultSettings("https://v.example", "k", "/t"))
    assert isinstance(roots.root("default"), VaultRoot)
    assert before is not roots.root("default")


def test_what_is_missing_or_no_root_is_named(tmp_path: Path) -> None:
    with pytest.raises(KeyStoreBroken, match="TUNERY_ROOTS_DIR"):
        Roots(tmp_path).root("default")
    for name in ("", "../x", "A", "a.b", "x" * 64):
        with pytest.raises(KeyStoreBroken, match="no name of a root"):
            create_root(tmp_path, name)
    path = tmp_path / "a.json"
    for body in (
        b"",
        b"[]",
        b'{"kind":"vault"}',
        b'{"kind":"vault","adress":"x"}',
        b'{"kind":"kms"}',
    ):
        path.write_bytes(body)
        with pytest.raises(KeyStoreBroken, match=r"a\.json"):
            open_root(path)
