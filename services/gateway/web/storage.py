"""Object storage with limits that a waiting client can bear."""

import asyncio
from collections.abc import Awaitable
from typing import Final, TypeVar

from schemas.units import Ms
from tunery.runtime.blobs.abstract import BlobsUnavailable

ANSWER_MS_MAX: Final[Ms] = 3_000
BYTES_PER_MS_MIN: Final = 1_000  # slower storage than 1 MB/s counts as away
T = TypeVar("T")


async def within(operation: Awaitable[T], bytes_moved: int = 0) -> T:
    """Raises BlobsUnavailable when storage takes longer than it may for so many bytes."""
    wait_ms = ANSWER_MS_MAX + bytes_moved // BYTES_PER_MS_MIN
    try:
        async with asyncio.timeout(wait_ms / 1_000):
            return await operation
    except TimeoutError as error:
        raise BlobsUnavailable(f"object storage did not answer within {wait_ms} ms") from error
