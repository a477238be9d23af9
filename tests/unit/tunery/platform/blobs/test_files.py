"""Hashes of files."""

import hashlib
from pathlib import Path

from tunery.platform.blobs.files import file_sha256


def test_the_hash_is_that_of_all_bytes(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 3_000_000)
    assert file_sha256(path) == hashlib.sha256(b"x" * 3_000_000).hexdigest()
