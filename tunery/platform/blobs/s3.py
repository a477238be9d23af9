"""Object storage over S3. boto3 is synchronous, so it runs in its own few threads."""

import asyncio
import hashlib
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any, Final, TypeVar

import boto3
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    FlexibleChecksumError,
    HTTPClientError,
)

from schemas.units import Ms
from tunery.runtime.blobs.abstract import (
    BLOB_BYTES_MAX,
    CHUNK_BYTES,
    PART_BYTES,
    BlobCorrupt,
    BlobExists,
    BlobMissing,
    BlobsUnavailable,
    BlobTooLarge,
    Listed,
    Stored,
    check_key,
)
from tunery.runtime.blobs.writing import StreamedBlobs
from tunery.runtime.telemetry.metrics import BLOB_BYTES
from tunery.runtime.telemetry.traces import traced
from tunery.runtime.telemetry.trail import current_trail

THREADS_MAX: Final = 8
CONNECT_S_MAX: Final = 2
READ_S_MAX: Final = 30
JOIN_S_MAX: Final = 300  # some storages write a blob of many parts once more when it is complete
ATTEMPTS_MAX: Final = 2
CONFLICT_RETRIES_MAX: Final = 5
T = TypeVar("T")
# boto3 builds its classes at run time, so its client has no static type worth the name
Client = Any


class _Conflict(BlobsUnavailable):
    """Storage refused conflicting conditional writes without choosing one: try again."""


@dataclass(frozen=True)
class S3Settings:
    """Endpoint (a URL), credentials and bucket of an S3-compatible object storage."""

    endpoint: str
    access_key: str = field(repr=False)
    secret_key: str = field(repr=False)
    bucket: str
    region: str = "us-east-1"


def connect(settings: S3Settings, read_s_max: int = READ_S_MAX) -> Client:
    """A boto3 client of the storage; a response may take `read_s_max` seconds."""
    return boto3.client(
        "s3",
        endpoint_url=settings.endpoint,
        aws_access_key_id=settings.access_key,
        aws_secret_access_key=settings.secret_key,
        region_name=settings.region,
        config=Config(
            signature_version="s3v4",
            s3={"addressing_style": "path"},
            connect_timeout=CONNECT_S_MAX,
            read_timeout=read_s_max,
            max_pool_connections=THREADS_MAX,
            retries={"max_attempts": ATTEMPTS_MAX, "mode": "standard"},
        ),
    )


@contextmanager
def named_errors(key: str) -> Iterator[None]:
    """Convert botocore's errors to ours."""
    try:
        yield
    except ClientError as error:
        code = str(error.response.get("Error", {}).get("Code", ""))
        if code in ("NoSuchKey", "404", "NotFound"):
            raise BlobMissing(key) from error
        if code in ("PreconditionFailed", "412"):
            raise BlobExists(key) from error
        if code in ("ConditionalRequestConflict", "OperationAborted"):
            raise _Conflict(f"S3 did not choose a winner for {key}") from error
        raise BlobsUnavailable(f"S3 refused {key}: {error}") from error
    except FlexibleChecksumError as error:  # of the bytes when they were stored: no later try helps
        raise BlobCorrupt(key, "its own", "another") from error
    except (BotoCoreError, HTTPClientError, OSError) as error:
        raise BlobsUnavailable(f"S3 cannot be used for {key}: {error}") from error


def _ms(time: datetime) -> Ms:
    return int(time.timestamp() * 1_000)


class S3Blobs(StreamedBlobs):
    """Implements `Blobs`."""

    def __init__(self, settings: S3Settings) -> None:
        self._settings = settings
        self._client = connect(settings)
        self._joining = connect(settings, JOIN_S_MAX)
        self._threads = ThreadPoolExecutor(THREADS_MAX, "s3")

    async def prepare(self) -> None:
        """Make the bucket if it is missing. Raises BlobsUnavailable."""
        try:
            await self.call("", self._client.head_bucket)
        except BlobMissing:
            with suppress(BlobExists):
                await self.call("", self._client.create_bucket)

    async def call(self, key: str, operation: Callable[..., T], **arguments: Any) -> T:
        """One request in a thread, on our bucket; a span of what it is for."""
        work = partial(operation, Bucket=self._settings.bucket, **arguments)
        span = traced(current_trail(), f"s3 {operation.__name__}", "client")
        with span, named_errors(key):
            return await self._thread(work)

    async def _thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def upload(self, key: str, *, sha256: str | None = None) -> "S3Upload":
        check_key(key)
        return S3Upload(self, self._client, self._joining, key, sha256)

    async def put(
        self,
        key: str,
        data: bytes | AsyncIterable[bytes],
        *,
        sha256: str | None = None,
        if_absent: bool = False,
    ) -> Stored:
        """Raises BlobCorrupt, BlobExists, BlobTooLarge, BlobsUnavailable; ValueError."""
        check_key(key)
        if isinstance(data, bytes):
            return await self._put_bytes(key, data, sha256, if_absent)
        if if_absent:
            raise ValueError("if_absent is for bytes; streams get content-named keys")
        async with await self.upload(key, sha256=sha256) as upload:
            async for chunk in data:
                await upload.write(chunk)
            return await upload.complete()

    async def _put_bytes(
        self, key: str, data: bytes, sha256: str | None, if_absent: bool
    ) -> Stored:
        got = hashlib.sha256(data).hexdigest()
        if sha256 is not None and got != sha256:
            raise BlobCorrupt(key, sha256, got)
        if len(data) > BLOB_BYTES_MAX:
            raise BlobTooLarge(key)
        condition = {"IfNoneMatch": "*"} if if_absent else {}
        for retry in range(CONFLICT_RETRIES_MAX + 1):
            try:
                await self.call(key, self._client.put_object, Key=key, Body=data, **condition)
                break
            except _Conflict:
                if retry == CONFLICT_RETRIES_MAX:
                    raise
        BLOB_BYTES.labels("put").inc(len(data))
        return Stored(key, got, len(data))

    async def stream(self, key: str, *, sha256: str | None = None) -> AsyncIterator[bytes]:
        """Raises BlobMissing, BlobsUnavailable; BlobCorrupt after the last chunk."""
        check_key(key)
        answer = await self.call(key, self._client.get_object, Key=key)
        body, digest = answer["Body"], hashlib.sha256()
        try:
            while chunk := await self._read(key, body, digest):
                BLOB_BYTES.labels("get").inc(len(chunk))
                yield chunk
        finally:
            body.close()
        if sha256 is not None and digest.hexdigest() != sha256:
            raise BlobCorrupt(key, sha256, digest.hexdigest())

    async def _read(self, key: str, body: Any, digest: "hashlib._Hash") -> bytes:
        def read() -> bytes:
            chunk: bytes = body.read(CHUNK_BYTES)
            digest.update(chunk)
            return chunk

        with named_errors(key):
            return await self._thread(read)

    async def size(self, key: str) -> int | None:
        check_key(key)
        try:
            answer = await self.call(key, self._client.head_object, Key=key)
        except BlobMissing:
            return None
        return int(answer["ContentLength"])

    async def delete(self, key: str, *, before: Ms | None = None) -> None:
        check_key(key)
        with suppress(BlobMissing):
            if before is not None:
                head = await self.call(key, self._client.head_object, Key=key)
                if _ms(head["LastModified"]) >= before:
                    return
            await self.call(key, self._client.delete_object, Key=key)

    async def delete_below(self, prefix: str, *, but: str | None = None) -> int:
        """One by one: not every storage deletes many keys in one request."""
        check_key(f"{prefix}key")
        removed, kept = 0, but or ()  # nothing begins with one of no prefixes
        async for page in self._pages(prefix, self._client.list_objects_v2, "ContinuationToken"):
            for entry in page.get("Contents", ()):
                if not entry["Key"].startswith(kept):
                    await self.delete(entry["Key"])
                    removed += 1
        listing = self._client.list_multipart_uploads
        async for page in self._pages(prefix, listing, "KeyMarker", "UploadIdMarker"):
            for entry in page.get("Uploads", ()):
                key, upload_id = entry["Key"], entry["UploadId"]
                if key.startswith(prefix) and not key.startswith(kept):
                    aborting = self._client.abort_multipart_upload
                    with suppress(BlobMissing):
                        await self.call(key, aborting, Key=key, UploadId=upload_id)
                    removed += 1
        return removed

    async def listed(self, prefix: str) -> AsyncIterator[Listed]:
        """Yield what is stored below a prefix, for an operator. Raises BlobsUnavailable."""
        async for page in self._pages(prefix, self._client.list_objects_v2, "ContinuationToken"):
            for entry in page.get("Contents", ()):
                yield Listed(entry["Key"], int(entry["Size"]), _ms(entry["LastModified"]))

    async def _pages(
        self, prefix: str, listing: Callable[..., Any], *markers: str
    ) -> AsyncIterator[Mapping[str, Any]]:
        """The pages of a listing. markers: of where the next page begins, as it calls them."""
        begin: dict[str, str] = {}
        while True:
            page = await self.call(prefix, listing, Prefix=prefix, **begin)
            yield page
            if not page.get("IsTruncated"):
                return
            begin = {name: page[f"Next{name}"] for name in markers}

    async def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._client.close()
        self._joining.close()


class S3Upload:
    """Implements `BlobUpload`. Small blobs are one put; the multipart upload starts with part 2."""

    def __init__(
        self, blobs: S3Blobs, client: Client, joining: Client, key: str, sha256: str | None
    ) -> None:
        self._blobs, self._client, self._joining = blobs, client, joining
        self._key, self._expected = key, sha256
        self._digest, self._bytes = hashlib.sha256(), 0
        self._buffer = bytearray()
        self._upload_id: str | None = None
        self._parts: list[dict[str, Any]] = []
        self._over = False

    async def write(self, chunk: bytes) -> None:
        """Raises BlobTooLarge, BlobsUnavailable; RuntimeError after `complete` or `abort`."""
        if self._over:
            raise RuntimeError("the upload is over")
        if self._bytes + len(chunk) > BLOB_BYTES_MAX:
            raise BlobTooLarge(self._key)
        self._bytes += len(chunk)
        self._buffer += chunk
        while len(self._buffer) > PART_BYTES:
            part = bytes(self._buffer[:PART_BYTES])
            del self._buffer[:PART_BYTES]
            await self._send(part)

    async def _send(self, part: bytes) -> None:
        if self._upload_id is None:
            begun = await self._call(self._client.create_multipart_upload)
            self._upload_id = begun["UploadId"]

        def upload_part(**arguments: Any) -> Any:  # in the thread: it takes as long as sending does
            self._digest.update(part)
            return self._client.upload_part(**arguments)

        number = len(self._parts) + 1
        answer = await self._call(
            upload_part, UploadId=self._upload_id, PartNumber=number, Body=part
        )
        self._parts.append({"PartNumber": number, "ETag": answer["ETag"]})
        BLOB_BYTES.labels("put").inc(len(part))

    async def _call(self, operation: Callable[..., Any], **arguments: Any) -> Any:
        return await self._blobs.call(self._key, operation, Key=self._key, **arguments)

    async def complete(self) -> Stored:
        """Raises BlobCorrupt (nothing is kept), BlobsUnavailable."""
        if self._upload_id is None:
            stored = await self._blobs.put(self._key, bytes(self._buffer), sha256=self._expected)
            self._over = True
            return stored
        await self._send(bytes(self._buffer))
        got = self._digest.hexdigest()
        if self._expected is not None and got != self._expected:
            await self.abort()
            raise BlobCorrupt(self._key, self._expected, got)
        await self._call(
            self._joining.complete_multipart_upload,
            UploadId=self._upload_id,
            MultipartUpload={"Parts": self._parts},
        )
        self._over = True
        return Stored(self._key, got, self._bytes)

    async def abort(self) -> None:
        if self._over:
            return
        self._over = True
        self._buffer.clear()
        if self._upload_id is not None:
            with suppress(BlobMissing, BlobsUnavailable):  # garbage at worst, that no record names
                await self._call(self._client.abort_multipart_upload, UploadId=self._upload_id)

    async def __aenter__(self) -> "S3Upload":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.abort()
