"""Object storage that is away for a while, and time that passes only in sleeps."""

from pathlib import Path

from tunery.runtime.blobs.abstract import BlobsUnavailable, Stored
from tunery.runtime.blobs.memory import MemoryBlobs


class UnavailableBlobs(MemoryBlobs):
    """Refuses the first `outage` calls, or all of them."""

    def __init__(self, outage: int) -> None:
        super().__init__()
        self.outage = outage

    def _fail(self) -> None:
        if self.outage > 0:
            self.outage -= 1
            raise BlobsUnavailable("connection refused")

    async def get(self, key: str, *, sha256: str | None = None) -> bytes:
        self._fail()
        return await super().get(key, sha256=sha256)

    async def put_file(self, key: str, path: Path, *, sha256: str | None = None) -> Stored:
        self._fail()
        return await super().put_file(key, path, sha256=sha256)

    async def get_file(self, key: str, path: Path, *, sha256: str | None = None) -> Stored:
        self._fail()
        return await super().get_file(key, path, sha256=sha256)


class SleepClock:
    """Time that passes only in sleeps."""

    def __init__(self) -> None:
        self.ms = 0

    def monotonic_ms(self) -> int:
        return self.ms

    def now_ms(self) -> int:
        return self.ms

    async def sleep(self, ms: int) -> None:
        self.ms += ms
