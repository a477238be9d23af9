"""Timeout of object storage."""

import asyncio

import pytest

from services.gateway.web import storage
from services.gateway.web.storage import within
from tunery.runtime.blobs.abstract import BlobMissing, BlobsUnavailable


async def test_an_answer_in_time_is_passed_on() -> None:
    async def read() -> bytes:
        return b"rows"

    assert await within(read()) == b"rows"


async def test_an_error_of_storage_is_passed_on() -> None:
    async def read() -> bytes:
        raise BlobMissing("blob-1")

    with pytest.raises(BlobMissing):
        await within(read())


async def test_storage_that_does_not_answer_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "ANSWER_MS_MAX", 1)
    with pytest.raises(BlobsUnavailable, match="within 1 ms"):
        await within(asyncio.Event().wait())


async def test_more_bytes_may_take_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "ANSWER_MS_MAX", 1)
    with pytest.raises(BlobsUnavailable, match="within 3 ms"):
        await within(asyncio.Event().wait(), 2 * storage.BYTES_PER_MS_MIN)
