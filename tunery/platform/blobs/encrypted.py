"""Object storage with tenants' content encrypted.

An encrypted blob lies at its key with `.sealed` behind it, under a key that follows from a data
key of its tenant. Blobs of before that lie at their keys, and are read as they are.
"""

import asyncio
import hashlib
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Iterator
from contextlib import aclosing, contextmanager
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from schemas.units import Ms
from tunery.platform.blobs.frames import (
    HEADER_BYTES,
    FrameBroken,
    FrameReader,
    FrameWriter,
    content_bytes,
    version_of,
)
from tunery.platform.blobs.path_keys import PathKeys
from tunery.platform.seal.abstract import KeyUnavailable
from tunery.runtime.blobs.abstract import (
    BlobChanged,
    BlobCorrupt,
    BlobExists,
    BlobMissing,
    Blobs,
    BlobsUnavailable,
    BlobUpload,
    Stored,
    check_key,
)
from tunery.runtime.blobs.writing import StreamedBlobs

SUFFIX: Final = ".sealed"
CLEAR_KINDS: Final = frozenset(("exports",))  # books outlive the key of their tenant
INLINE_BYTES_MAX: Final = 128 * 1024  # takes less time than another thread
T = TypeVar("T")


def owner_of(key: str) -> str | None:
    """The tenant with whose data key a blob is encrypted; None: it stays in the clear."""
    root, _, rest = key.partition("/")
    tenant, _, rest = rest.partition("/")
    kind, _, name = rest.partition("/")
    is_sealed = root == "t" and bool(name) and kind not in CLEAR_KINDS
    return tenant if is_sealed else None


async def _compute(size: int, work: Callable[[], T]) -> T:
    """Run a call in a thread if it would block the event loop."""
    return work() if size <= INLINE_BYTES_MAX else await asyncio.to_thread(work)


class EncryptedUpload:
    """Implements `BlobUpload`. Size and SHA-256 are those of the content."""

    def __init__(self, inner: BlobUpload, writer: FrameWriter, key: str, sha256: str | None):
        self._inner, self._writer = inner, writer
        self._key, self._expected = key, sha256
        self._digest, self._bytes = hashlib.sha256(), 0
        self._stored: Stored | None = None

    async def write(self, chunk: bytes) -> None:
        """Raises BlobTooLarge, BlobsUnavailable."""

        def encrypt() -> bytes:
            self._digest.update(chunk)
            return self._writer.write(chunk)

        stored = await _compute(len(chunk), encrypt)
        self._bytes += len(chunk)
        await self._inner.write(stored)

    async def complete(self) -> Stored:
        """Raises BlobCorrupt (nothing is kept), BlobTooLarge, BlobsUnavailable.

        It can be repeated after BlobsUnavailable.
        """
        if self._stored is None:
            got = self._digest.hexdigest()
            if self._expected is not None and got != self._expected:
                await self.abort()
                raise BlobCorrupt(self._key, self._expected, got)
            await self._inner.write(self._writer.finish())
            self._stored = Stored(self._key, got, self._bytes)
        await self._inner.complete()
        return self._stored

    async def abort(self) -> None:
        await self._inner.abort()

    async def __aenter__(self) -> "EncryptedUpload":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.abort()


class EncryptedBlobs(StreamedBlobs):
    """Implements `Blobs`, above another one. It closes that one.

    encrypts: whether new blobs are encrypted; those that are can be read in any case.
    """

    def __init__(self, inner: Blobs, keys: PathKeys, *, encrypts: bool = True) -> None:
        self._inner, self._keys, self._encrypts = inner, keys, encrypts

    def _owner(self, key: str) -> str | None:
        """Return the tenant whose key encrypts a new blob; None: it is stored in the clear."""
        return owner_of(key) if self._encrypts else None

    def _writer(self, key: str, tenant: str) -> FrameWriter:
        """Raises BlobsUnavailable, KeyStoreBroken."""
        with _outages(key):
            return FrameWriter(self._keys.current(tenant, key))

    async def upload(self, key: str, *, sha256: str | None = None) -> BlobUpload:
        tenant = self._owner(key)
        if tenant is None:
            return await self._inner.upload(key, sha256=sha256)
        check_key(key)
        inner = await self._inner.upload(key + SUFFIX)
        return EncryptedUpload(inner, self._writer(key, tenant), key, sha256)

    async def put(
        self,
        key: str,
        data: bytes | AsyncIterable[bytes],
        *,
        sha256: str | None = None,
        if_absent: bool = False,
    ) -> Stored:
        """Raises BlobCorrupt, BlobExists, BlobTooLarge, BlobsUnavailable; ValueError."""
        tenant = self._owner(key)
        if tenant is None:
            return await self._inner.put(key, data, sha256=sha256, if_absent=if_absent)
        check_key(key)
        if not isinstance(data, bytes):
            if if_absent:
                raise ValueError("if_absent is for bytes; streams get content-named keys")
            async with await self.upload(key, sha256=sha256) as upload:
                async for chunk in data:
                    await upload.write(chunk)
                return await upload.complete()
        got = hashlib.sha256(data).hexdigest()
        if sha256 is not None and got != sha256:
            raise BlobCorrupt(key, sha256, got)
        writer = self._writer(key, tenant)
        sealed = await _compute(len(data), lambda: writer.write(data) + writer.finish())
        if if_absent and await self._inner.exists(key):
            raise BlobExists(key)
        try:
            await self._inner.put(key + SUFFIX, sealed, if_absent=if_absent)
        except BlobExists as error:
            raise BlobExists(key) from error
        return Stored(key, got, len(data))

    async def put_file(self, key: str, path: Path, *, sha256: str | None = None) -> Stored:
        if self._owner(key) is None:
            return await self._inner.put_file(key, path, sha256=sha256)
        return await super().put_file(key, path, sha256=sha256)

    async def stream(self, key: str, *, sha256: str | None = None) -> AsyncIterator[bytes]:
        """Raises BlobMissing, BlobsUnavailable; BlobCorrupt, at the latest after the last chunk.

        What was decrypted for one chunk is authenticated; that it is all, the last one shows.
        """
        check_key(key)
        tenant = owner_of(key)
        if tenant is not None:
            try:
                async with aclosing(self._decrypted(key, tenant, sha256)) as chunks:
                    async for chunk in chunks:
                        yield chunk
                return
            except _Unsealed:
                pass
        async for chunk in self._inner.stream(key, sha256=sha256):
            yield chunk

    async def _decrypted(
        self, key: str, tenant: str, sha256: str | None
    ) -> AsyncGenerator[bytes, None]:
        """Raises _Unsealed when there is no encrypted blob with a key; what `stream` raises."""
        reader: FrameReader | None = None
        head, digest = b"", hashlib.sha256()

        def decrypt(frames: FrameReader, stored: bytes) -> bytes:
            content = frames.read(stored)
            digest.update(content)
            return content

        try:
            async for stored in self._inner.stream(key + SUFFIX):
                rest = stored
                if reader is None:
                    head += stored
                    if len(head) < HEADER_BYTES:
                        continue
                    reader = self._reader(key, tenant, head[:HEADER_BYTES])
                    rest = head[HEADER_BYTES:]
                if content := await _compute(len(rest), partial(decrypt, reader, rest)):
                    yield content
            if reader is None:
                raise FrameBroken("the blob ends in its header")
            end = reader.finish()
        except BlobMissing as error:
            raise _Unsealed from error
        except FrameBroken as error:
            raise BlobChanged(key) from error
        digest.update(end)
        if end:
            yield end
        if sha256 is not None and digest.hexdigest() != sha256:
            raise BlobCorrupt(key, sha256, digest.hexdigest())

    def _reader(self, key: str, tenant: str, header: bytes) -> FrameReader:
        """Raises BlobMissing when its key was destroyed; BlobsUnavailable, FrameBroken."""
        with _outages(key):
            path_key = self._keys.find(tenant, key, version_of(header))
        if path_key is None:
            raise BlobMissing(key)
        return FrameReader(path_key, header)

    async def size(self, key: str) -> int | None:
        """Return the size of the decrypted content in bytes; None: there is no such blob.

        Raises BlobChanged, BlobsUnavailable.
        """
        if owner_of(key) is not None:
            stored = await self._inner.size(key + SUFFIX)
            if stored is not None:
                try:
                    return content_bytes(stored)
                except FrameBroken as error:
                    raise BlobChanged(key) from error
        return await self._inner.size(key)

    async def delete(self, key: str, *, before: Ms | None = None) -> None:
        if owner_of(key) is not None:
            await self._inner.delete(key + SUFFIX, before=before)
        await self._inner.delete(key, before=before)

    async def delete_below(self, prefix: str, *, but: str | None = None) -> int:
        return await self._inner.delete_below(prefix, but=but)

    async def close(self) -> None:
        await self._inner.close()


@contextmanager
def _outages(key: str) -> Iterator[None]:
    """Convert an unavailable key to an unavailable blob, as in an outage of storage."""
    try:
        yield
    except KeyUnavailable as error:
        raise BlobsUnavailable(f"{key} has no key now: {error}") from error


class _Unsealed(Exception):
    """There is no encrypted blob of this key."""
