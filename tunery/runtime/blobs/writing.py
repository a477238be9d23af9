"""Streams of bytes: out of a file, and into one completely and checked, or not at all."""

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from tunery.runtime.blobs.abstract import CHUNK_BYTES, BlobCorrupt, Blobs, Stored


async def read_chunks(path: Path) -> AsyncIterator[bytes]:
    """The bytes of a file, piece by piece. Raises OSError."""
    with path.open("rb") as file:
        while chunk := await asyncio.to_thread(file.read, CHUNK_BYTES):
            yield chunk


async def write_file(
    key: str, path: Path, chunks: AsyncIterator[bytes], sha256: str | None
) -> Stored:
    """Write aside, check, fsync, rename. Raises BlobCorrupt and what the stream raises."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}.part")
    digest, size = hashlib.sha256(), 0
    try:
        handle = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as file:
            async for chunk in chunks:
                await asyncio.to_thread(_take, file, digest, chunk)
                size += len(chunk)
            await asyncio.to_thread(_sync, file)
        got = digest.hexdigest()
        if sha256 is not None and got != sha256:
            raise BlobCorrupt(key, sha256, got)
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
    return Stored(key, got, size)


def _take(file: BinaryIO, digest: Any, chunk: bytes) -> None:
    file.write(chunk)
    digest.update(chunk)


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


class StreamedBlobs(Blobs, Protocol):
    """Base of storage whose files and whole blobs are streams, and whose blobs have a size."""

    async def put_file(self, key: str, path: Path, *, sha256: str | None = None) -> Stored:
        return await self.put(key, read_chunks(path), sha256=sha256)

    async def get(self, key: str, *, sha256: str | None = None) -> bytes:
        return b"".join([chunk async for chunk in self.stream(key, sha256=sha256)])

    async def get_file(self, key: str, path: Path, *, sha256: str | None = None) -> Stored:
        return await write_file(key, path, self.stream(key), sha256)

    async def exists(self, key: str) -> bool:
        return await self.size(key) is not None
