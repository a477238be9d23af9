"""Keys and objects beside the journals of a backup."""

import shutil

import pytest

from tests.histories.recorder import TENANT
from tests.unit.tunery.cli.backup.homes import (
    OBJECT,
    Home,
)
from tunery.local.errors import LocalError
from tunery.platform.seal.directory import DirectoryKeyStore
from tunery.platform.seal.roots import create_root
from tunery.runtime.bus.memory import MemoryLog


async def test_keys_of_erased_tenants_leave_the_backup(home: Home, busy: MemoryLog) -> None:
    home.store.get("gone")
    assert (await home.take(busy)).keys == {TENANT: "default", "gone": "default"}
    home.store.destroy("gone")
    assert (await home.take(busy)).keys == {TENANT: "default", "gone": None}
    assert (home.backup.keys / "gone.key").read_bytes() == b""
    shutil.rmtree(home.keystore)
    with pytest.raises(LocalError, match="lacks 1 keys that the backup has, acme"):
        await home.take(busy)
    DirectoryKeyStore(home.keystore).get(TENANT)
    with pytest.raises(LocalError, match="is in the clear"):
        await home.take(busy)


async def test_lacking_objects_and_keys_are_named_before_anything_is_written(
    home: Home, busy: MemoryLog
) -> None:
    await home.take(busy)
    home.objects[OBJECT] = 6
    with pytest.raises(LocalError, match=rf"lacks 1 objects of the backup:\n  {OBJECT}"):
        await home.restore()
    (home.roots / "default.json").unlink()
    create_root(home.roots)  # as `tunery up` does in an empty folder
    with pytest.raises(LocalError, match=r"1 keys .* do not open .*\n.*root keys of the old"):
        await home.restore(objects=True)
    assert not home.log.topics
    restored = await home.restore(objects=True, keys=True)
    assert (restored.missing_objects, list(restored.unopened_keys)) == ([OBJECT], [TENANT])
