"""A stream of bytes is in its file completely, or nothing is."""

import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tunery.runtime.blobs.abstract import BlobCorrupt, Stored
from tunery.runtime.blobs.writing import write_file

DATA = b"lamp and rock" * 1_000
SHA256 = hashlib.sha256(DATA).hexdigest()


async def in_chunks(data: bytes = DATA, error: Exception | None = None) -> AsyncIterator[bytes]:
    for start in range(0, len(data), 700):
        yield data[start : start + 700]
    if error is not None:
        raise error


@pytest.mark.parametrize("expected", [None, SHA256])
async def test_the_file_has_all_bytes_and_is_described(
    tmp_path: Path, expected: str | None
) -> None:
    path = tmp_path / "blob"
    stored = await write_file("t/acme/blob", path, in_chunks(), expected)
    assert stored == Stored("t/acme/blob", SHA256, len(DATA))
    assert path.read_bytes() == DATA
    assert [entry.name for entry in tmp_path.iterdir()] == ["blob"]
    assert path.stat().st_mode & 0o777 == 0o600


async def test_other_bytes_than_expected_replace_nothing(tmp_path: Path) -> None:
    path = tmp_path / "blob"
    path.write_bytes(b"before")
    with pytest.raises(BlobCorrupt):
        await write_file("t/acme/blob", path, in_chunks(DATA + b"!"), SHA256)
    assert [entry.read_bytes() for entry in tmp_path.iterdir()] == [b"before"]


async def test_a_stream_that_breaks_leaves_no_part_of_it(tmp_path: Path) -> None:
    with pytest.raises(ConnectionError):
        await write_file("k", tmp_path / "blob", in_chunks(error=ConnectionError()), None)
    assert list(tmp_path.iterdir()) == []
