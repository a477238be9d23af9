"""The contract of object storage. Subclasses define a fixture `blobs`; the suite has own keys."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import pytest

from tunery.runtime.blobs.abstract import (
    PART_BYTES,
    BlobCorrupt,
    BlobExists,
    BlobMissing,
    Blobs,
    Stored,
    blob_key,
)

WRONG = "0" * 64


def fresh_key() -> str:
    return f"t/suite/{uuid4().hex}"


def sha256(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


async def pieces(body: bytes, size: int) -> AsyncIterator[bytes]:
    for start in range(0, len(body), size):
        yield body[start : start + size]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def big_body() -> bytes:
    """Three parts, the last one short."""
    return bytes(range(256)) * (2 * PART_BYTES // 256) + b"the end"


class BlobsSuite:
    async def test_a_blob_is_deleted_only_if_it_is_old_enough(self, blobs: Blobs) -> None:
        key = fresh_key()
        await blobs.put(key, b"1")
        await blobs.delete(key, before=0)
        assert await blobs.exists(key)
        for _ in range(2):  # a repeat is harmless
            await blobs.delete(key, before=2**42)
        assert not await blobs.exists(key)

    async def test_a_stored_blob_is_read_back(self, blobs: Blobs) -> None:
        key, body = fresh_key(), b"\0bytes\xff"
        stored = await blobs.put(key, body, sha256=sha256(body))
        assert stored == Stored(key, sha256(body), len(body))
        assert await blobs.get(key, sha256=stored.sha256) == body
        assert await blobs.size(key) == len(body)
        assert await blobs.exists(key)

    async def test_an_empty_blob_is_a_blob(self, blobs: Blobs) -> None:
        key = fresh_key()
        await blobs.put(key, b"")
        assert await blobs.get(key, sha256=sha256(b"")) == b""
        async with await blobs.upload(key) as upload:
            assert (await upload.complete()).bytes == 0

    async def test_a_missing_blob_is_named(self, blobs: Blobs, tmp_path: Path) -> None:
        key = fresh_key()
        assert not await blobs.exists(key)
        assert await blobs.size(key) is None
        with pytest.raises(BlobMissing, match=key):
            await blobs.get(key)
        with pytest.raises(BlobMissing, match=key):
            await blobs.get_file(key, tmp_path / "file")
        assert names(tmp_path) == []

    async def test_wrong_bytes_are_refused_on_the_way_in(
        self, blobs: Blobs, tmp_path: Path
    ) -> None:
        key = fresh_key()
        (tmp_path / "file").write_bytes(b"body")
        with pytest.raises(BlobCorrupt) as caught:
            await blobs.put(key, b"body", sha256=WRONG)
        assert (caught.value.key, caught.value.expected) == (key, WRONG)
        assert caught.value.got == sha256(b"body")
        with pytest.raises(BlobCorrupt):
            await blobs.put_file(key, tmp_path / "file", sha256=WRONG)
        with pytest.raises(BlobCorrupt):
            await blobs.put(key, pieces(big_body(), 3_000_000), sha256=WRONG)
        assert not await blobs.exists(key)

    async def test_wrong_bytes_are_named_on_the_way_out(self, blobs: Blobs, tmp_path: Path) -> None:
        key = fresh_key()
        await blobs.put(key, b"body")
        with pytest.raises(BlobCorrupt):
            await blobs.get(key, sha256=WRONG)
        with pytest.raises(BlobCorrupt):
            await blobs.get_file(key, tmp_path / "file", sha256=WRONG)
        assert names(tmp_path) == []

    async def test_files_go_both_ways(self, blobs: Blobs, tmp_path: Path) -> None:
        key, body = fresh_key(), big_body()
        (tmp_path / "in").write_bytes(body)
        stored = await blobs.put_file(key, tmp_path / "in", sha256=sha256(body))
        assert stored == Stored(key, sha256(body), len(body))
        (tmp_path / "out").write_bytes(b"old")
        got = await blobs.get_file(key, tmp_path / "out", sha256=stored.sha256)
        assert got == stored
        assert (tmp_path / "out").read_bytes() == body
        assert names(tmp_path) == ["in", "out"]

    async def test_streams_are_put_in_parts(self, blobs: Blobs) -> None:
        for body in (b"short", big_body(), bytes(PART_BYTES), bytes(2 * PART_BYTES)):
            key = fresh_key()
            stored = await blobs.put(key, pieces(body, 1_000_003), sha256=sha256(body))
            assert stored == Stored(key, sha256(body), len(body))
            chunks = [chunk async for chunk in blobs.stream(key, sha256=stored.sha256)]
            assert b"".join(chunks) == body

    async def test_an_aborted_upload_leaves_no_blob(self, blobs: Blobs) -> None:
        key = fresh_key()

        async def die_on_the_way() -> None:
            async with await blobs.upload(key) as upload:
                await upload.write(big_body())
                raise ConnectionError("the client went away")

        with pytest.raises(ConnectionError):
            await die_on_the_way()
        assert not await blobs.exists(key)
        upload = await blobs.upload(key)
        await upload.write(b"x")
        await upload.abort()
        await upload.abort()
        assert not await blobs.exists(key)

    async def test_abort_after_complete_does_nothing(self, blobs: Blobs) -> None:
        key = fresh_key()
        upload = await blobs.upload(key)
        await upload.write(b"kept")
        await upload.complete()
        await upload.abort()
        assert await blobs.get(key) == b"kept"

    async def test_of_several_conditional_writers_one_wins(self, blobs: Blobs) -> None:
        key = fresh_key()
        results = await asyncio.gather(
            *(blobs.put(key, f"{n}".encode(), if_absent=True) for n in range(8)),
            return_exceptions=True,
        )
        winners = [n for n, result in enumerate(results) if isinstance(result, Stored)]
        assert len(winners) == 1
        assert sum(isinstance(result, BlobExists) for result in results) == 7
        assert await blobs.get(key) == f"{winners[0]}".encode()

    async def test_delete_repeats(self, blobs: Blobs) -> None:
        key = fresh_key()
        await blobs.put(key, b"x")
        await blobs.delete(key)
        await blobs.delete(key)
        assert not await blobs.exists(key)

    async def test_keys_that_confuse_storage_are_refused(self, blobs: Blobs) -> None:
        for key in ("", "/t/a", "t//a", "t/../a", "t/a/", "t/ü", "t/a\n", "t/" + "x" * 1_000):
            with pytest.raises(ValueError, match="is not a key"):
                await blobs.put(key, b"x")

    async def test_content_names(self, blobs: Blobs) -> None:
        digest = sha256(b"x")
        key = blob_key("acme", "files", digest, ".jsonl")
        assert key == f"t/acme/files/{digest[:2]}/{digest}.jsonl"
        assert (await blobs.put(key, b"x", sha256=digest)).key == key

    async def test_security_h4_everything_below_a_prefix_is_removed_but_one_folder(
        self, blobs: Blobs
    ) -> None:
        tenant = f"t/suite-{uuid4().hex}"
        kept = (f"{tenant}/exports/a", f"{tenant}2/rows")
        gone = [f"{tenant}/rows/{number}" for number in range(3)]
        for key in (*kept, *gone):
            await blobs.put(key, b"x")
        unfinished = await blobs.upload(f"{tenant}/models/weights")
        await unfinished.write(big_body())
        removed = await blobs.delete_below(f"{tenant}/", but=f"{tenant}/exports/")
        assert removed >= len(gone)
        assert [await blobs.exists(key) for key in (*kept, *gone)] == [True] * 2 + [False] * 3
        assert await blobs.delete_below(f"{tenant}/", but=f"{tenant}/exports/") == 0
        assert await blobs.delete_below(f"{tenant}/") == 1
        await unfinished.abort()
