"""Object storage for clients that wait: time limits, and streams."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from typing import Final, TypeVar

from schemas.units import Ms
from tunery.runtime.blobs.abstract import BlobsUnavailable

ANSWER_MS_MAX: Final[Ms] = 3_000
BYTES_PER_MS_MIN: Final = 1_000  # storage slower than 1 MB/s counts as unavailable
T = TypeVar("T")


async def within(operation: Awaitable[T], bytes_moved: int = 0) -> T:
    """Await an operation on this many bytes. Raises BlobsUnavailable when it takes too long."""
    wait_ms = ANSWER_MS_MAX + bytes_moved // BYTES_PER_MS_MIN
    try:
        async with asyncio.timeout(wait_ms / 1_000):
            return await operation
    except TimeoutError as error:
        raise BlobsUnavailable(f"object storage did not answer within {wait_ms} ms") from error


async def chain(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """A stream whose first chunk was awaited before the status line was sent."""
    yield first
    async for chunk in rest:
        yield chunk
