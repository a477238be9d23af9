"""Port of object storage. A blob is written once and complete, or it does not exist.

What makes a blob count is a record on the log that names its key and SHA-256; a blob that no
record names is garbage. So every read that matters gives the hash, and a wrong byte is named.
"""

from collections.abc import AsyncIterable, AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from schemas.units import Ms

CHUNK_BYTES: Final = 1024 * 1024
PART_BYTES: Final = 8 * 1024 * 1024
PARTS_MAX: Final = 10_000
BLOB_BYTES_MAX: Final = PART_BYTES * PARTS_MAX
KEY_BYTES_MAX: Final = 900


class BlobError(Exception):
    """Base of what object storage raises."""


class BlobMissing(BlobError):
    """There is no blob of this key."""

    def __init__(self, key: str) -> None:
        super().__init__(f"there is no blob {key}")
        self.key = key


class BlobExists(BlobError):
    """A conditional create found the key taken."""

    def __init__(self, key: str) -> None:
        super().__init__(f"blob {key} exists already")
        self.key = key


class BlobCorrupt(BlobError):
    """The bytes have the SHA-256 `got` instead of `expected`."""

    def __init__(self, key: str, expected: str, got: str) -> None:
        super().__init__(f"blob {key} has SHA-256 {got}, expected {expected}")
        self.key, self.expected, self.got = key, expected, got


class BlobChanged(BlobCorrupt):
    """An encrypted blob does not decrypt: it was changed, cut off, or put in another place."""

    def __init__(self, key: str) -> None:
        super().__init__(key, "its own", "another")


class BlobTooLarge(BlobError):
    """The blob would have more than BLOB_BYTES_MAX bytes."""

    def __init__(self, key: str) -> None:
        super().__init__(f"blob {key} would have more than {BLOB_BYTES_MAX} bytes")
        self.key = key


class BlobsUnavailable(BlobError):
    """Object storage cannot be reached or answers with its own error; try again later."""


@dataclass(frozen=True)
class Stored:
    """A complete blob. `sha256` in lower-case hex."""

    key: str
    sha256: str
    bytes: int


class Listed(NamedTuple):
    """A stored object as a listing has it: encrypted where it is."""

    key: str
    bytes: int
    stored_at: Ms  # by the clock of the storage


def blob_key(tenant: str, kind: str, sha256: str, suffix: str = "") -> str:
    """Content-named key: `t/<tenant>/<kind>/<first two digits>/<sha256><suffix>`."""
    return f"t/{tenant}/{kind}/{sha256[:2]}/{sha256}{suffix}"


class BlobUpload(Protocol):
    """An upload of one blob. Leaving the context without `complete` aborts it."""

    async def write(self, chunk: bytes) -> None:
        """Take the next bytes, any number. Raises BlobTooLarge, BlobsUnavailable."""

    async def complete(self) -> Stored:
        """Make the blob exist. Raises BlobCorrupt (nothing is kept), BlobsUnavailable."""

    async def abort(self) -> None:
        """Forget what was written. Repeats, and calls after `complete`, do nothing."""

    async def __aenter__(self) -> "BlobUpload": ...

    async def __aexit__(self, *_: object) -> None: ...


class Blobs(Protocol):
    """Every method raises BlobsUnavailable. Keys are `t/<tenant>/…`, see `blob_key`."""

    async def upload(self, key: str, *, sha256: str | None = None) -> BlobUpload:
        """A streamed upload in parts of PART_BYTES; SHA-256 is taken on the way and, where
        `sha256` is given, compared before the blob exists."""

    async def put(
        self,
        key: str,
        data: bytes | AsyncIterable[bytes],
        *,
        sha256: str | None = None,
        if_absent: bool = False,
    ) -> Stored:
        """Store bytes, or a stream. `if_absent` (bytes only) makes one of several writers win.

        Raises BlobCorrupt, BlobExists, BlobTooLarge.
        """

    async def put_file(self, key: str, path: Path, *, sha256: str | None = None) -> Stored:
        """Store a file. Raises BlobCorrupt, BlobTooLarge, OSError of the file."""

    async def get(self, key: str, *, sha256: str | None = None) -> bytes:
        """The whole blob, for small ones. Raises BlobMissing, BlobCorrupt."""

    async def get_file(self, key: str, path: Path, *, sha256: str | None = None) -> Stored:
        """Write the blob to `path`, which appears complete or not at all (mode 0600).

        Raises BlobMissing, BlobCorrupt, OSError of the file.
        """

    def stream(self, key: str, *, sha256: str | None = None) -> AsyncIterator[bytes]:
        """The blob in chunks. Raises BlobMissing; BlobCorrupt after the last chunk."""

    async def size(self, key: str) -> int | None:
        """Bytes, or None when there is no such blob."""

    async def exists(self, key: str) -> bool:
        """Return whether a complete blob is stored under this key."""

    async def delete(self, key: str, *, before: Ms | None = None) -> None:
        """Remove the blob; repeats are harmless. `before`: unless it was stored at that time or
        later, by the clock of the storage."""

    async def delete_below(self, prefix: str, *, but: str | None = None) -> int:
        """Remove all blobs whose keys begin with `prefix`, and unfinished uploads to such keys,
        except those that begin with `but`; how many there were. Both end in "/"."""

    async def close(self) -> None:
        """Free connections and threads."""


class ListedBlobs(Blobs, Protocol):
    """Object storage that can be listed."""

    def listed(self, prefix: str) -> AsyncIterator[Listed]:
        """Yield what is stored below a prefix. Raises BlobsUnavailable."""


def check_key(key: str) -> None:
    """Raises ValueError for a key that some storage would refuse or confuse."""
    parts = key.split("/")
    plain = key.isascii() and key.isprintable() and len(key) <= KEY_BYTES_MAX
    if not plain or any(part in ("", ".", "..") for part in parts):
        raise ValueError(f"{key[:100]!r} is not a key: use printable ASCII, no empty parts")
