from pathlib import Path

import pytest

from tunery.platform.seal.abstract import DataKey, Keyring, KeyStoreBroken
from tunery.platform.seal.key_files import KeyFile, open_file, read_file, seal_file
from tunery.platform.seal.roots import Roots, create_root

RING = Keyring((DataKey("ü.1", bytes(32)), DataKey("ü.2", bytes(range(32)))))


def test_versions_come_back_in_their_order_wrapped_or_not(tmp_path: Path) -> None:
    create_root(tmp_path)
    path = tmp_path / "a.key"
    for root in (None, "default"):
        path.write_bytes(seal_file(RING, root, Roots(tmp_path)))
        file = read_file(path)
        assert file is not None
        assert (file.root, list(file.versions)) == (root, ["ü.1", "ü.2"])
        assert open_file(path, file, Roots(tmp_path)) == RING


def test_an_empty_file_and_one_of_zeroes_say_that_it_was_destroyed(tmp_path: Path) -> None:
    for body in (b"", b"\0" * 100):
        (tmp_path / "a.key").write_bytes(body)
        assert read_file(tmp_path / "a.key") is None


def test_a_version_is_not_taken_for_another(tmp_path: Path) -> None:
    create_root(tmp_path)
    path = tmp_path / "a.key"
    path.write_bytes(seal_file(RING, "default", Roots(tmp_path)))
    file = read_file(path)
    assert file is not None
    first, second = file.versions.values()
    with pytest.raises(KeyStoreBroken, match="does not open"):
        open_file(path, KeyFile("default", {"ü.1": second, "ü.2": first}), Roots(tmp_path))
