from pathlib import Path

import pytest

from tunery.platform.blobs import path_keys
from tunery.platform.blobs.frames import former_path_key
from tunery.platform.blobs.path_keys import HandedPathKeys, LeasePathKeys, TenantPathKeys
from tunery.platform.seal.abstract import KeyAbsent, KeyStoreBroken
from tunery.platform.seal.directory import DirectoryKeyStore
from tunery.platform.seal.memory import MemoryKeyStore

PATH = "t/acme/models/m/a"


def test_each_version_of_a_data_key_has_a_key_of_the_path() -> None:
    store = MemoryKeyStore()
    keys = TenantPathKeys(store)
    assert keys.all("acme", PATH) == ()
    assert store.find("acme") is None, "reading makes no key"
    first = keys.current("acme", PATH)
    store.rotate("acme")
    second = keys.current("acme", PATH)
    ring = store.find("acme")
    assert ring is not None
    former = tuple(former_path_key(key, PATH) for key in ring.versions)
    assert keys.all("acme", PATH) == (first, second, *former)
    assert keys.find("acme", PATH, former[0].version) == former[0]
    assert len(keys.all("acme", "t/acme/models/")) == 2, "no blob of before follows from a folder"
    assert keys.find("acme", PATH, first.version) == first
    assert keys.current("acme", PATH + "b").secret != second.secret
    assert keys.current("other", PATH).secret != second.secret


def test_after_an_erasure_nothing_opens_and_new_blobs_have_a_lost_key() -> None:
    store = MemoryKeyStore()
    keys = TenantPathKeys(store)
    before = keys.current("acme", PATH)
    store.destroy("acme")
    assert keys.all("acme", PATH) == ()
    assert keys.find("acme", PATH, before.version) is None
    lost = keys.current("acme", PATH)
    assert keys.find("acme", PATH, lost.version) is None
    assert keys.current("acme", PATH).secret != lost.secret


def test_handed_keys_open_their_path_and_the_oldest_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(path_keys, "HANDED_MAX", 2)
    key = TenantPathKeys(MemoryKeyStore()).current("acme", PATH)
    handed = HandedPathKeys()
    for path in ("a", "b", "c"):
        handed.add(path, (key,))
    assert [handed.find("acme", path, key.version) for path in ("a", "b", "c")] == [None, key, key]
    with pytest.raises(RuntimeError, match="writes nothing"):
        handed.current("acme", PATH)


@pytest.mark.security
def test_security_m3_a_lease_opens_what_it_was_given_and_writes_below_its_folders() -> None:
    keys = TenantPathKeys(MemoryKeyStore())
    folder = "t/acme/checkpoints/job/1/"
    current, lease = keys.current("acme", PATH), LeasePathKeys()
    lease.add(PATH, keys.all("acme", PATH))
    lease.add("t/acme/models/", keys.all("acme", "t/acme/models/"))
    lease.add_folder(folder, keys.current("acme", folder))
    assert lease.find("acme", PATH, current.version) == current
    model = "t/acme/models/m/ab/abc"
    assert lease.find("acme", model, current.version) == keys.current("acme", model)
    written = folder + "ab/abc"
    assert lease.current("acme", written) == keys.current("acme", written)
    assert lease.find("acme", written, current.version) == keys.current("acme", written)
    for foreign in ("t/other/models/m", "t/acme/files/f", "t/acme/checkpoints/job/12/ab"):
        with pytest.raises(KeyStoreBroken, match=foreign):
            lease.find("acme", foreign, current.version)
    for elsewhere in (PATH, "t/acme/checkpoints/job/2/ab", model):
        with pytest.raises(KeyStoreBroken, match="may be written"):
            lease.current("acme", elsewhere)
    with pytest.raises(KeyStoreBroken):
        lease.find("acme", model, b"tunery-1" + current.version[8:])


def test_a_service_that_makes_no_keys_waits_for_those_of_the_one_that_does(
    tmp_path: Path,
) -> None:
    store = DirectoryKeyStore(tmp_path, creates=False)
    keys = TenantPathKeys(store)
    with pytest.raises(KeyAbsent, match="TUNERY_KEYSTORE_DIR"):
        keys.current("acme", PATH)
    with pytest.raises(KeyAbsent, match="tenant acme has no key"):
        keys.find("acme", PATH, b"12345678")
    assert list(tmp_path.glob("*.key")) == [], "it made none"
    shared = TenantPathKeys(DirectoryKeyStore(tmp_path)).current("acme", PATH)
    assert keys.current("acme", PATH) == shared
