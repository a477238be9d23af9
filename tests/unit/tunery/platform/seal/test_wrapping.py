"""Rotation of root keys, also when it is killed in the middle."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tunery.platform.seal.abstract import KeyStoreBroken
from tunery.platform.seal.directory import DirectoryKeyStore
from tunery.platform.seal.key_files import KeyFile
from tunery.platform.seal.roots import Roots, create_root
from tunery.platform.seal.sealer import Sealer
from tunery.platform.seal.wrapping import is_clear, prepare_root, rotate_root, wrap_all

TENANTS = [f"tenant-{number}" for number in range(60)]
ROTATE = """
import sys
from pathlib import Path
from tunery.platform.seal.directory import DirectoryKeyStore
from tunery.platform.seal.roots import Roots
from tunery.platform.seal.wrapping import rotate_root
folder = Path(sys.argv[1])
roots = Roots(folder / "roots")
store = DirectoryKeyStore(folder / "keys", roots)
print("ready", flush=True)
while True:
    rotate_root(store, roots, "default", forget=sys.argv[2] == "forget")
"""


def opened(folder: Path) -> tuple[DirectoryKeyStore, Roots]:
    roots = Roots(folder / "roots")
    return DirectoryKeyStore(folder / "keys", roots), roots


def versions(store: DirectoryKeyStore) -> set[str]:
    """Which versions of the root wrap the keys."""
    files = [store.stored(tenant) for tenant in store.tenants()]
    return {text.split(":")[1] for file in files if file for text in file.versions.values()}


def test_a_rotation_wraps_all_keys_with_the_new_version(tmp_path: Path) -> None:
    create_root(tmp_path / "roots")
    store, roots = opened(tmp_path)
    sealed = [Sealer(store).seal(tenant, tenant, "name") for tenant in TENANTS]
    (before,) = versions(store)
    wrapped = rotate_root(store, roots, "default", forget=False)
    assert (sorted(wrapped.tenants), wrapped.failed) == (sorted(TENANTS), {})
    (after,) = versions(store)
    assert before != after
    assert len(json.loads((tmp_path / "roots" / "default.json").read_text())["versions"]) == 2
    rotate_root(store, roots, "default", forget=True)
    assert len(json.loads((tmp_path / "roots" / "default.json").read_text())["versions"]) == 1
    fresh, _ = opened(tmp_path)
    assert [Sealer(fresh).open(field, "name") for field in sealed] == TENANTS


def test_a_copy_from_before_never_opens_again_once_versions_are_forgotten(tmp_path: Path) -> None:
    create_root(tmp_path / "roots")
    store, roots = opened(tmp_path)
    sealed = Sealer(store).seal("acme", "text", "name")
    backup = (tmp_path / "keys" / "acme.key").read_bytes()
    store.destroy("acme")
    rotate_root(store, roots, "default", forget=True)
    (tmp_path / "keys" / "acme.key").write_bytes(backup)
    with pytest.raises(KeyStoreBroken, match="no version"):
        Sealer(opened(tmp_path)[0]).open(sealed, "name")


@pytest.mark.parametrize("forget", ["keep", "forget"])
def test_a_kill_in_the_middle_leaves_every_key_readable(tmp_path: Path, forget: str) -> None:
    create_root(tmp_path / "roots")
    store, _ = opened(tmp_path)
    sealed = [Sealer(store).seal(tenant, tenant, "name") for tenant in TENANTS]
    mixed, attempt = 0, 0
    while attempt < 12 or not mixed:  # each a moment later: a slow machine needs more of them
        attempt += 1
        argv = [sys.executable, "-c", ROTATE, str(tmp_path), forget]
        with subprocess.Popen(argv, stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            child.stdout.readline()
            time.sleep(0.004 + 0.006 * attempt)
            os.kill(child.pid, signal.SIGKILL)
        fresh, _ = opened(tmp_path)
        assert [Sealer(fresh).open(field, "name") for field in sealed] == TENANTS
        mixed += len(versions(fresh)) > 1
    assert mixed, "it was killed between two keys at least once"
    assert wrap_all(store, lambda _file: True).failed == {}
    assert len(versions(store)) == 1
    assert [Sealer(store).open(field, "name") for field in sealed] == TENANTS


def test_keys_that_fail_are_named_and_nothing_is_forgotten(tmp_path: Path) -> None:
    create_root(tmp_path / "roots")
    store, roots = opened(tmp_path)
    store.get("acme")
    store.get("broken")
    (tmp_path / "keys" / "broken.key").write_bytes(b"{")
    wrapped = rotate_root(store, roots, "default", forget=True)
    assert wrapped.tenants == ["acme"]
    assert "broken.key is not a key file" in wrapped.failed["broken"]
    assert len(json.loads((tmp_path / "roots" / "default.json").read_text())["versions"]) == 2


def test_a_folder_of_before_there_were_roots_is_carried_over(tmp_path: Path) -> None:
    before = DirectoryKeyStore(tmp_path / "keys")
    sealed = [Sealer(before).seal(tenant, tenant, "name") for tenant in TENANTS]
    assert is_clear(KeyFile(None, {}))
    assert not is_clear(KeyFile("default", {}))
    store, roots = opened(tmp_path)
    assert sorted(prepare_root(store, roots).tenants) == sorted(TENANTS)
    assert prepare_root(store, roots).tenants == []
    assert [Sealer(store).open(field, "name") for field in sealed] == TENANTS
    assert b"secret" not in b"".join(path.read_bytes() for path in (tmp_path / "keys").iterdir())


def test_a_lost_root_is_not_replaced_by_a_new_one(tmp_path: Path) -> None:
    store, roots = opened(tmp_path)
    prepare_root(store, roots)
    store.get("acme")
    (tmp_path / "roots" / "default.json").unlink()
    with pytest.raises(KeyStoreBroken, match="restore it from a backup"):
        prepare_root(store, roots)
    assert list((tmp_path / "roots").glob("*.json")) == []
