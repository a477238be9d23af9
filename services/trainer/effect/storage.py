"""Blobs of an attempt. An outage of object storage is waited out: hours of work hang on it."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, TypeVar

from schemas.units import Ms
from services.trainer.domain.state import Grant
from services.trainer.effect.attempt import Tools
from tunery.runtime.blobs.abstract import BlobsUnavailable, Stored, blob_key
from tunery.runtime.clock import Clock

OUTAGE_MS_MAX: Final[Ms] = 120_000
PAUSE_MS_MIN: Final[Ms] = 200
PAUSE_MS_MAX: Final[Ms] = 5_000
T = TypeVar("T")


async def fetch(tools: Tools, key: str, path: Path, sha256: str) -> None:
    """Raises BlobMissing, BlobCorrupt; BlobsUnavailable after OUTAGE_MS_MAX; OSError."""

    async def get() -> Stored:
        return await tools.runtime.blobs.get_file(key, path, sha256=sha256)

    await _patiently(tools.runtime.clock, get)


async def upload(tools: Tools, grant: Grant, kind: str, path: Path, sha256: str) -> Stored:
    """Store a file of an attempt: the key has the job, the attempt and the content's hash.

    Raises BlobCorrupt; BlobsUnavailable after OUTAGE_MS_MAX; FileNotFoundError.
    """
    kind = f"{kind}/{grant.job_id}/{grant.attempt}"
    key = blob_key(grant.tenant, kind, sha256)

    async def put() -> Stored:
        return await tools.runtime.blobs.put_file(key, path, sha256=sha256)

    return await _patiently(tools.runtime.clock, put)


async def _patiently(clock: Clock, operation: Callable[[], Awaitable[T]]) -> T:
    begun_ms, pause_ms = clock.monotonic_ms(), PAUSE_MS_MIN
    while True:
        try:
            return await operation()
        except BlobsUnavailable:
            if clock.monotonic_ms() - begun_ms >= OUTAGE_MS_MAX:
                raise
        await clock.sleep(pause_ms)
        pause_ms = min(2 * pause_ms, PAUSE_MS_MAX)
