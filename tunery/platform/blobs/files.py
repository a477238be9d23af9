"""Hashes of files. Worker processes import it, so it imports no event loop."""

import hashlib
from pathlib import Path


def file_sha256(path: Path) -> str:
    """SHA-256 of a file in hex. Raises `OSError` when it cannot be read."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
