"""Blobs in memory beyond the common contract: tests can inspect and damage them."""

from pathlib import Path

import pytest

from tunery.runtime.blobs import memory
from tunery.runtime.blobs.abstract import BlobCorrupt, BlobExists, BlobTooLarge
from tunery.runtime.blobs.memory import MemoryBlobs

KEY = "t/acme/blob"


@pytest.fixture
def blobs() -> MemoryBlobs:
    return MemoryBlobs()


async def test_a_damaged_body_is_found_by_its_hash(blobs: MemoryBlobs, tmp_path: Path) -> None:
    stored = await blobs.put(KEY, b"adapter")
    blobs.bodies[KEY] = b"adapteR"
    with pytest.raises(BlobCorrupt):
        await blobs.get(KEY, sha256=stored.sha256)
    with pytest.raises(BlobCorrupt):
        await blobs.get_file(KEY, tmp_path / "adapter", sha256=stored.sha256)
    assert list(tmp_path.iterdir()) == []
    assert await blobs.get(KEY) == b"adapteR"


async def test_an_upload_is_bounded_and_stored_only_when_it_is_complete(
    blobs: MemoryBlobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "BLOB_BYTES_MAX", 4)
    async with await blobs.upload(KEY) as upload:
        await upload.write(b"1234")
        assert not await blobs.exists(KEY)
        with pytest.raises(BlobTooLarge):
            await upload.write(b"5")
        assert (await upload.complete()).bytes == 4
    assert blobs.bodies == {KEY: b"1234"}


async def test_a_second_conditional_write_changes_nothing(blobs: MemoryBlobs) -> None:
    await blobs.put(KEY, b"first", if_absent=True)
    with pytest.raises(BlobExists):
        await blobs.put(KEY, b"second", if_absent=True)
    assert await blobs.get(KEY) == b"first"


async def test_long_bodies_come_in_chunks(
    blobs: MemoryBlobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "CHUNK_BYTES", 3)
    await blobs.put(KEY, b"12345678")
    assert [chunk async for chunk in blobs.stream(KEY)] == [b"123", b"456", b"78"]
