"""Blobs of an attempt. An outage of object storage is waited out: hours of work depend on it."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, TypeVar

from schemas.units import Ms
from services.trainer.domain.state import Grant
from tunery.platform.ports import Runtime
from tunery.runtime.backoff import Backoff, retry
from tunery.runtime.blobs.abstract import BlobsUnavailable, Stored, blob_key
from tunery.runtime.clock import Clock

OUTAGE_MS_MAX: Final[Ms] = 120_000
RETRIES: Final = Backoff(200, 5_000)
T = TypeVar("T")


async def fetch(runtime: Runtime, key: str, path: Path, sha256: str) -> None:
    """Copy a blob to a file.

    Raises BlobMissing, BlobCorrupt; BlobsUnavailable after OUTAGE_MS_MAX; OSError.
    """

    async def get() -> Stored:
        return await runtime.blobs.get_file(key, path, sha256=sha256)

    await _retry_while_unavailable(runtime.clock, get)


async def upload(runtime: Runtime, grant: Grant, kind: str, path: Path, sha256: str) -> Stored:
    """Store a file of an attempt: the key has the job, the attempt and the content's hash.

    Raises BlobCorrupt; BlobsUnavailable after OUTAGE_MS_MAX; FileNotFoundError.
    """
    key = blob_key(grant.tenant, f"{kind}/{grant.job_id}/{grant.attempt}", sha256)

    async def put() -> Stored:
        return await runtime.blobs.put_file(key, path, sha256=sha256)

    return await _retry_while_unavailable(runtime.clock, put)


async def _retry_while_unavailable(clock: Clock, operation: Callable[[], Awaitable[T]]) -> T:
    return await retry(
        operation,
        (BlobsUnavailable,),
        clock=clock,
        backoff=RETRIES,
        elapsed_ms_max=OUTAGE_MS_MAX,
    )
