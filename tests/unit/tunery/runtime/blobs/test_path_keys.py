from pathlib import Path

import pytest

from tunery.runtime.blobs import path_keys
from tunery.runtime.blobs.path_keys import HandedPathKeys, TenantPathKeys
from tunery.runtime.seal.abstract import KeyStoreBroken
from tunery.runtime.seal.directory import DirectoryKeyStore
from tunery.runtime.seal.memory import MemoryKeyStore
from tunery.runtime.seal.sealer import Sealer

PATH = "t/acme/models/m/a"


def test_each_version_of_a_data_key_has_a_key_of_the_path() -> None:
    store = MemoryKeyStore()
    keys = TenantPathKeys(store)
    assert keys.all("acme", PATH) == ()
    assert store.find("acme") is None, "reading makes no key"
    first = keys.current("acme", PATH)
    store.rotate("acme")
    second = keys.current("acme", PATH)
    assert keys.all("acme", PATH) == (first, second)
    assert keys.find("acme", PATH, first.version) == first
    assert keys.current("acme", PATH + "b").secret != second.secret
    assert keys.current("other", PATH).secret != second.secret


def test_after_an_erasure_nothing_opens_and_what_is_written_has_a_key_of_nobody() -> None:
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


def test_a_node_without_the_key_of_a_tenant_neither_reads_nor_writes(tmp_path: Path) -> None:
    store = DirectoryKeyStore(tmp_path, creates=False)
    keys = TenantPathKeys(store, is_node=True)
    with pytest.raises(KeyStoreBroken, match="TUNERY_KEYSTORE_DIR"):
        keys.current("acme", PATH)
    with pytest.raises(KeyStoreBroken, match="no key of tenant acme"):
        keys.find("acme", PATH, b"12345678")
    assert Sealer(store).seal("acme", "text", "detail").ciphertext == b""
    assert list(tmp_path.glob("*.key")) == [], "it made none"
    shared = TenantPathKeys(DirectoryKeyStore(tmp_path)).current("acme", PATH)
    assert keys.current("acme", PATH) == shared
