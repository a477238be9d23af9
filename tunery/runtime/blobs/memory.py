"""Object storage in memory: for tests and the simulator."""

import asyncio
import hashlib
from collections.abc import AsyncIterable, AsyncIterator, Callable
from pathlib import Path

from schemas.units import Ms
from tunery.runtime.blobs.abstract import (
    BLOB_BYTES_MAX,
    CHUNK_BYTES,
    BlobCorrupt,
    BlobExists,
    BlobMissing,
    BlobTooLarge,
    Listed,
    Stored,
    check_key,
)
from tunery.runtime.blobs.writing import StreamedBlobs


class MemoryUpload:
    """Implements `BlobUpload`."""

    def __init__(self, blobs: "MemoryBlobs", key: str, sha256: str | None) -> None:
        self._blobs, self._key, self._sha256 = blobs, key, sha256
        self._body = bytearray()

    async def write(self, chunk: bytes) -> None:
        """Raises BlobTooLarge."""
        if len(self._body) + len(chunk) > BLOB_BYTES_MAX:
            raise BlobTooLarge(self._key)
        self._body += chunk

    async def complete(self) -> Stored:
        return await self._blobs.put(self._key, bytes(self._body), sha256=self._sha256)

    async def abort(self) -> None:
        self._body.clear()

    async def __aenter__(self) -> "MemoryUpload":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.abort()


class MemoryBlobs(StreamedBlobs):
    """Implements `Blobs`. `bodies` is open to tests that damage something."""

    def __init__(self, now_ms: Callable[[], Ms] = lambda: 0) -> None:
        self.bodies: dict[str, bytes] = {}
        self.stored_at: dict[str, Ms] = {}
        self._now_ms = now_ms

    async def upload(self, key: str, *, sha256: str | None = None) -> MemoryUpload:
        check_key(key)
        return MemoryUpload(self, key, sha256)

    async def put(
        self,
        key: str,
        data: bytes | AsyncIterable[bytes],
        *,
        sha256: str | None = None,
        if_absent: bool = False,
    ) -> Stored:
        """Raises BlobCorrupt, BlobExists."""
        check_key(key)
        body = data if isinstance(data, bytes) else b"".join([chunk async for chunk in data])
        got = hashlib.sha256(body).hexdigest()
        if sha256 is not None and got != sha256:
            raise BlobCorrupt(key, sha256, got)
        if if_absent and key in self.bodies:
            raise BlobExists(key)
        self.bodies[key] = body
        self.stored_at[key] = self._now_ms()
        return Stored(key, got, len(body))

    async def put_file(self, key: str, path: Path, *, sha256: str | None = None) -> Stored:
        return await self.put(key, await asyncio.to_thread(path.read_bytes), sha256=sha256)

    async def stream(self, key: str, *, sha256: str | None = None) -> AsyncIterator[bytes]:
        """Raises BlobMissing; BlobCorrupt after the last chunk."""
        if key not in self.bodies:
            raise BlobMissing(key)
        body = self.bodies[key]
        for start in range(0, len(body), CHUNK_BYTES):
            yield body[start : start + CHUNK_BYTES]
        got = hashlib.sha256(body).hexdigest()
        if sha256 is not None and got != sha256:
            raise BlobCorrupt(key, sha256, got)

    async def size(self, key: str) -> int | None:
        return len(self.bodies[key]) if key in self.bodies else None

    async def delete(self, key: str, *, before: Ms | None = None) -> None:
        if before is None or self.stored_at.get(key, 0) < before:
            self.bodies.pop(key, None)

    async def delete_below(self, prefix: str, *, but: str | None = None) -> int:
        kept = but or ()  # nothing begins with one of no prefixes
        keys = [key for key in self.bodies if key.startswith(prefix) and not key.startswith(kept)]
        for key in keys:
            await self.delete(key)
        return len(keys)

    async def listed(self, prefix: str) -> AsyncIterator[Listed]:
        """Yield what is stored below a prefix, as `S3Blobs` does."""
        for key in sorted(self.bodies):
            if key.startswith(prefix):
                yield Listed(key, len(self.bodies[key]), self.stored_at.get(key, 0))

    async def close(self) -> None:
        """Nothing to free."""
