"""New blobs are encrypted with the tenant's key, and older plain blobs are still read."""

import hashlib
from typing import NoReturn

import pytest

from tests.contract.blobs_suite import BlobsSuite, big_body
from tunery.platform.blobs.encrypted import SUFFIX, EncryptedBlobs, owner_of
from tunery.platform.blobs.frames import (
    HEADER_BYTES,
    STORED_FRAME_BYTES,
    FrameWriter,
    former_path_key,
)
from tunery.platform.blobs.path_keys import HandedPathKeys, TenantPathKeys
from tunery.platform.seal.abstract import RootUnavailable
from tunery.platform.seal.memory import MemoryKeyStore
from tunery.runtime.blobs.abstract import BlobChanged, BlobMissing, Blobs, BlobsUnavailable
from tunery.runtime.blobs.memory import MemoryBlobs

KEY = "t/acme/files/file-1"


class TestEncryptedBlobs(BlobsSuite):
    """The contract of object storage, above storage in memory."""

    @pytest.fixture
    def blobs(self) -> Blobs:
        return EncryptedBlobs(MemoryBlobs(), TenantPathKeys(MemoryKeyStore()))


@pytest.fixture
def storage() -> MemoryBlobs:
    return MemoryBlobs()


@pytest.fixture
def keys() -> MemoryKeyStore:
    return MemoryKeyStore()


@pytest.fixture
def blobs(storage: MemoryBlobs, keys: MemoryKeyStore) -> EncryptedBlobs:
    return EncryptedBlobs(storage, TenantPathKeys(keys))


def test_what_is_of_a_tenant_has_an_owner() -> None:
    assert owner_of("t/acme/files/file-1") == "acme"
    assert owner_of("t/acme/prepared/ab/abcd.arrow") == "acme"
    assert owner_of("t/acme/models/m/a/adapter_model.safetensors") == "acme"
    for key in (
        "snapshots/job/0/a.json",
        "benchmarks/a.jsonl",
        "t/-/ready",
        "t/acme/exports/focus/2026-11/a.csv",
    ):
        assert owner_of(key) is None


async def test_storage_has_only_ciphertext(blobs: EncryptedBlobs, storage: MemoryBlobs) -> None:
    secret = b"a row that nobody else may read"
    await blobs.put(KEY, secret)
    async with await blobs.upload("t/acme/uploads/u/1") as upload:
        await upload.write(secret * 10_000)
        await upload.complete()
    await blobs.put("t/acme/exports/focus/a.csv", b"books")
    assert set(storage.bodies) == {
        KEY + SUFFIX,
        "t/acme/uploads/u/1" + SUFFIX,
        "t/acme/exports/focus/a.csv",
    }
    assert secret not in b"".join(storage.bodies.values())
    assert storage.bodies["t/acme/exports/focus/a.csv"] == b"books"


async def test_blobs_of_before_are_read_and_deleted(
    blobs: EncryptedBlobs, storage: MemoryBlobs
) -> None:
    storage.bodies[KEY] = b"before"
    digest = hashlib.sha256(b"before").hexdigest()
    assert await blobs.get(KEY, sha256=digest) == b"before"
    assert await blobs.size(KEY) == 6
    await blobs.put(KEY, b"after")
    assert await blobs.get(KEY) == b"after"
    await blobs.delete(KEY)
    assert storage.bodies == {}


async def test_earlier_versions_of_a_key_decrypt_and_a_destroyed_key_does_not(
    blobs: EncryptedBlobs, keys: MemoryKeyStore, storage: MemoryBlobs
) -> None:
    await blobs.put(KEY, b"first")
    keys.rotate("acme")
    await blobs.put("t/acme/files/file-2", b"second")
    stored = [body[8:16] for body in storage.bodies.values()]
    assert stored[0] != stored[1]
    assert await blobs.get(KEY) == b"first"
    keys.destroy("acme")
    with pytest.raises(BlobMissing, match="file-1"):
        await blobs.get(KEY)
    await blobs.put("t/acme/reports/r", b"written after the erasure")
    with pytest.raises(BlobMissing):
        await blobs.get("t/acme/reports/r")


def flipped(content: bytes, at: int) -> bytes:
    """The content with one bit of a byte flipped."""
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


async def test_security_changed_and_moved_blobs_are_named(
    blobs: EncryptedBlobs, storage: MemoryBlobs
) -> None:
    body = big_body()
    await blobs.put(KEY, body)
    stored = storage.bodies[KEY + SUFFIX]
    frame = HEADER_BYTES + STORED_FRAME_BYTES
    other = "t/acme/files/file-2"
    for changed in (
        stored[:frame],
        stored[:20],
        b"",
        stored[:-1],
        flipped(stored, frame + 9),
        flipped(stored, 0),
    ):
        storage.bodies[KEY + SUFFIX] = changed
        with pytest.raises(BlobChanged, match=KEY):
            await blobs.get(KEY)
    storage.bodies[other + SUFFIX] = stored
    with pytest.raises(BlobChanged, match="file-2"):
        await blobs.get(other)
    storage.bodies[other + SUFFIX] = b"short"
    with pytest.raises(BlobChanged):
        await blobs.size(other)


async def test_security_a_process_without_data_keys_reads_what_it_was_handed_keys_for(
    blobs: EncryptedBlobs, storage: MemoryBlobs, keys: MemoryKeyStore
) -> None:
    await blobs.put(KEY, b"first")
    keys.rotate("acme")
    await blobs.put("t/acme/files/file-2", b"second")
    handed = HandedPathKeys()
    reader = EncryptedBlobs(storage, handed)
    with pytest.raises(BlobMissing):
        await reader.get(KEY)
    handed.add(KEY, TenantPathKeys(keys).all("acme", KEY))
    assert await reader.get(KEY) == b"first"
    with pytest.raises(BlobMissing):
        await reader.get("t/acme/files/file-2")
    handed.add("t/acme/files/file-2", TenantPathKeys(keys).all("acme", KEY))
    with pytest.raises(BlobChanged):
        await reader.get("t/acme/files/file-2")


async def test_a_blob_of_the_form_before_is_still_read(
    blobs: EncryptedBlobs, storage: MemoryBlobs, keys: MemoryKeyStore
) -> None:
    await blobs.put(KEY, b"written now")
    ring = keys.find("acme")
    assert ring is not None
    writer = FrameWriter(former_path_key(ring.current, KEY))
    storage.bodies[KEY + SUFFIX] = writer.write(b"written before") + writer.finish()
    assert await blobs.get(KEY) == b"written before"


async def test_where_encryption_is_off_what_was_encrypted_is_still_read(
    blobs: EncryptedBlobs, storage: MemoryBlobs, keys: MemoryKeyStore
) -> None:
    await blobs.put(KEY, b"encrypted")
    clear = EncryptedBlobs(storage, TenantPathKeys(keys), encrypts=False)
    assert await clear.get(KEY) == b"encrypted"
    await clear.put("t/acme/files/file-2", b"in the clear")
    assert storage.bodies["t/acme/files/file-2"] == b"in the clear"
    async with await clear.upload("t/acme/files/file-3") as upload:
        await upload.write(b"too")
        await upload.complete()
    assert await blobs.get("t/acme/files/file-3") == storage.bodies["t/acme/files/file-3"] == b"too"


class AwayRoot(MemoryKeyStore):
    """Its root key does not answer."""

    def get(self, tenant: str) -> NoReturn:
        raise RootUnavailable("Vault is away")

    def find(self, tenant: str) -> NoReturn:
        raise RootUnavailable("Vault is away")


async def test_an_outage_of_a_root_key_is_one_of_storage(
    blobs: EncryptedBlobs, storage: MemoryBlobs
) -> None:
    await blobs.put(KEY, b"content")
    away = EncryptedBlobs(storage, TenantPathKeys(AwayRoot()))
    with pytest.raises(BlobsUnavailable, match="Vault is away"):
        await away.get(KEY)
    with pytest.raises(BlobsUnavailable, match="Vault is away"):
        await away.put(KEY, b"content")
