"""Object storage as the pod of a lease reaches it: each object by a URL that its agent signs."""

import hashlib
import tempfile
from collections.abc import AsyncIterable, AsyncIterator
from pathlib import Path
from typing import BinaryIO, Final, Protocol

import httpx

from schemas.units import Ms
from services.cluster.domain.link import OBJECT_BYTES_MAX, SignedUrl, UrlRequest
from services.cluster.pod.agent_client import AgentAway, AgentRefuses
from tunery.runtime.blobs.abstract import (
    CHUNK_BYTES,
    BlobCorrupt,
    BlobMissing,
    BlobsUnavailable,
    BlobTooLarge,
    BlobUpload,
    Stored,
    check_key,
)
from tunery.runtime.blobs.writing import StreamedBlobs

TIMEOUT: Final = httpx.Timeout(30.0, connect=5.0)
MISSING: Final = 404


class UrlSource(Protocol):
    """Source of URLs: the agent of the lease."""

    async def url(self, request: UrlRequest) -> SignedUrl:
        """Return a URL of an object. Raises AgentAway, AgentRefuses."""


class AgentBlobs(StreamedBlobs):
    """Implements `Blobs` for an attempt, which reads and writes objects and deletes none.

    folder: where an upload is kept until its hash is known
    """

    def __init__(self, agent: UrlSource, folder: Path) -> None:
        self._agent, self._folder = agent, folder
        self._client = httpx.AsyncClient(timeout=TIMEOUT, trust_env=False)

    async def upload(self, key: str, *, sha256: str | None = None) -> BlobUpload:
        check_key(key)
        return _Upload(self, key, sha256, self._folder)

    async def put(
        self,
        key: str,
        data: bytes | AsyncIterable[bytes],
        *,
        sha256: str | None = None,
        if_absent: bool = False,
    ) -> Stored:
        """Raises BlobCorrupt, BlobTooLarge, BlobsUnavailable; ValueError."""
        if if_absent:
            raise ValueError("an attempt names its objects by their content: none is taken")
        async with await self.upload(key, sha256=sha256) as upload:
            if isinstance(data, bytes):
                await upload.write(data)
            else:
                async for chunk in data:
                    await upload.write(chunk)
            return await upload.complete()

    async def stream(self, key: str, *, sha256: str | None = None) -> AsyncIterator[bytes]:
        """Raises BlobMissing, BlobsUnavailable; BlobCorrupt after the last chunk."""
        check_key(key)
        digest = hashlib.sha256()
        signed = await self._signed(UrlRequest(method="GET", key=key))
        try:
            async with self._client.stream("GET", signed.url, headers=signed.headers) as reply:
                if reply.status_code == MISSING:
                    raise BlobMissing(key)
                if not reply.is_success:
                    raise BlobsUnavailable(f"{key}: the storage says {reply.status_code}")
                async for chunk in reply.aiter_raw(CHUNK_BYTES):
                    digest.update(chunk)
                    yield chunk
        except httpx.TransportError as error:
            raise BlobsUnavailable(f"{key}: {type(error).__name__}: {error}") from error
        if sha256 is not None and digest.hexdigest() != sha256:
            raise BlobCorrupt(key, sha256, digest.hexdigest())

    async def size(self, key: str) -> int | None:
        """Raises NotImplementedError: see `AgentBlobs`."""
        raise NotImplementedError("an attempt knows what it reads by its hash")

    async def delete(self, key: str, *, before: Ms | None = None) -> None:
        """Raises NotImplementedError: see `AgentBlobs`."""
        raise NotImplementedError("an attempt deletes nothing")

    async def delete_below(self, prefix: str, *, but: str | None = None) -> int:
        """Raises NotImplementedError: see `AgentBlobs`."""
        raise NotImplementedError("an attempt deletes nothing")

    async def close(self) -> None:
        await self._client.aclose()

    async def send(self, key: str, file: BinaryIO, size: int, sha256: str) -> None:
        """Put a file under a key. Raises BlobsUnavailable."""
        request = UrlRequest(method="PUT", key=key, size=size, sha256=sha256)
        signed = await self._signed(request)
        file.seek(0)

        async def chunks() -> AsyncIterator[bytes]:
            while chunk := file.read(CHUNK_BYTES):
                yield chunk

        try:
            reply = await self._client.put(signed.url, content=chunks(), headers=signed.headers)
        except httpx.TransportError as error:
            raise BlobsUnavailable(f"{key}: {type(error).__name__}: {error}") from error
        if not reply.is_success:
            raise BlobsUnavailable(f"{key}: the storage says {reply.status_code}: {reply.text}")

    async def _signed(self, request: UrlRequest) -> SignedUrl:
        try:
            return await self._agent.url(request)
        except (AgentAway, AgentRefuses) as error:
            raise BlobsUnavailable(f"{request.key}: no URL: {error}") from error


class _Upload:
    """Implements `BlobUpload`: a temporary file, which is put when its hash is known."""

    def __init__(self, blobs: AgentBlobs, key: str, sha256: str | None, folder: Path) -> None:
        self._blobs, self._key, self._expected = blobs, key, sha256
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115  # `abort` closes it
        self._digest, self._bytes = hashlib.sha256(), 0

    async def write(self, chunk: bytes) -> None:
        self._bytes += len(chunk)
        if self._bytes > OBJECT_BYTES_MAX:
            raise BlobTooLarge(self._key)
        self._digest.update(chunk)
        self._file.write(chunk)

    async def complete(self) -> Stored:
        got = self._digest.hexdigest()
        if self._expected is not None and got != self._expected:
            raise BlobCorrupt(self._key, self._expected, got)
        await self._blobs.send(self._key, self._file, self._bytes, got)
        return Stored(self._key, got, self._bytes)

    async def abort(self) -> None:
        self._file.close()

    async def __aenter__(self) -> "_Upload":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.abort()
