"""Backups in object storage: the files of a folder below a prefix, and heads beside them.

A head is an object with the number of a backup that names its manifest. Of commands at the same
time one alone makes the head of a number, and a backup without a head does not count.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from tunery.cli._options import Address
from tunery.cli.backup.folder import DAMAGED, Backup, BackupFolder
from tunery.cli.backup.surroundings import storage_settings
from tunery.local.errors import LocalError
from tunery.local.paths import DataDir
from tunery.platform.blobs.s3 import S3Blobs
from tunery.platform.seal.directory import SUFFIX
from tunery.runtime.blobs.abstract import BlobExists, BlobMissing, BlobsUnavailable, ListedBlobs

HEADS: Final = "heads/"
RUN: Final = re.compile(r"(?:segments/\w+-|inventories/)(\d+)-")  # that wrote a file
AT_ONCE_MAX: Final = 8


class BucketFolder:
    """Local copy of what a command needs of backups in a bucket."""

    def __init__(self, blobs: ListedBlobs, address: Address, folder: BackupFolder) -> None:
        self._blobs, self._address, self.folder = blobs, address, folder
        self._before: Backup | None = None
        self._keys: dict[str, bytes] = {}

    async def fetch(self, *, whole: bool) -> None:
        """Get the newest backup's manifests and all keys; `whole`: also all that they name.

        Raises LocalError, BlobsUnavailable.
        """
        heads = [name async for name in self._names(HEADS)]
        if not heads:
            return
        head = (await self._blobs.get(self._key(max(heads)))).decode()
        following: str | None = head
        while following is not None:
            await self._get((f"manifests/{following}",))
            following = self.folder.manifest(following).previous
        await self._get([name async for name in self._names("keys/")])
        self._keys = self._local_keys()
        self._before = self.folder.open()
        if whole and self._before is not None:
            await self._get(file for each in self._before.manifests for file in each.files)

    async def send(self) -> None:
        """Store what is new, of which the head comes last; then delete what is not needed any more.

        Raises LocalError where another command was faster, BlobsUnavailable.
        """
        after = self.folder.open()
        if after is None:
            return
        for name, body in self._local_keys().items():
            if self._keys.get(name) != body:
                await self._blobs.put(self._key(name), body)
        former = self._before.files if self._before else set[str]()
        await self._each(after.files - former, self._put)
        number = after.newest.number
        try:
            head = self._key(f"{HEADS}{number:06}")
            await self._blobs.put(head, after.name.encode(), if_absent=True)
        except BlobExists:
            raise LocalError(
                f"another `tunery backup` has written to {self._address} meanwhile",
                "its backup counts; run this command again for a newer one",
            ) from None
        runs = [(name, RUN.match(name)) async for name in self._names("")]
        left = {name for name, run in runs if run is not None and int(run[1]) <= number}
        await self._each((left | former) - after.files, self._delete)

    async def _names(self, below: str) -> AsyncIterator[str]:
        async for each in self._blobs.listed(self._key(below)):
            yield each.key.removeprefix(self._address.prefix)

    async def _get(self, names: Iterable[str]) -> None:
        async def get(name: str) -> None:
            try:
                await self._blobs.get_file(self._key(name), self.folder.path / name)
            except BlobMissing as error:
                raise LocalError(f"{self._address}{name} is missing", DAMAGED) from error

        await self._each(names, get)

    async def _put(self, name: str) -> None:
        await self._blobs.put_file(self._key(name), self.folder.path / name)

    async def _delete(self, name: str) -> None:
        await self._blobs.delete(self._key(name))

    async def _each(self, names: Iterable[str], work: Callable[[str], Awaitable[object]]) -> None:
        limit = asyncio.Semaphore(AT_ONCE_MAX)

        async def limited(name: str) -> None:
            async with limit:
                await work(name)

        await asyncio.gather(*map(limited, names))

    def _key(self, name: str) -> str:
        return f"{self._address.prefix}{name}"

    def _local_keys(self) -> dict[str, bytes]:
        paths = self.folder.keys.glob(f"[!.]*{SUFFIX}")
        return {f"keys/{path.name}": path.read_bytes() for path in paths}


@asynccontextmanager
async def writable(
    target: Path | Address, folders: DataDir, environ: Mapping[str, str]
) -> AsyncIterator[BackupFolder]:
    """Folder that a backup is added to, locked; what is new in it goes to where it belongs.

    Raises LocalError.
    """
    if isinstance(target, Path):
        folder = BackupFolder(target)
        with folder.locked():
            yield folder
        return
    async with _opened(target, folders, environ, makes_bucket=True) as copy:
        await copy.fetch(whole=False)
        yield copy.folder
        await copy.send()


@asynccontextmanager
async def readable(
    target: Path | Address, folders: DataDir, environ: Mapping[str, str]
) -> AsyncIterator[BackupFolder]:
    """Folder with all of a backup. Raises LocalError."""
    if isinstance(target, Path):
        yield BackupFolder(target)
        return
    async with _opened(target, folders, environ) as copy:
        await copy.fetch(whole=True)
        yield copy.folder


@asynccontextmanager
async def _opened(
    address: Address, folders: DataDir, environ: Mapping[str, str], makes_bucket: bool = False
) -> AsyncIterator[BucketFolder]:
    own = storage_settings(folders, environ)
    if own.bucket == address.bucket:
        raise LocalError(
            f"{own.bucket} is the bucket of this installation's objects", "choose another bucket"
        )
    blobs = S3Blobs(replace(own, bucket=address.bucket))
    try:
        if makes_bucket:
            await blobs.prepare()
        with TemporaryDirectory(prefix="tunery-backup-") as path:
            folder = BackupFolder(Path(path))
            with folder.locked():
                yield BucketFolder(blobs, address, folder)
    except BlobsUnavailable as error:
        raise LocalError(
            f"object storage at {own.endpoint} failed: {error}",
            f"see whether the bucket {address.bucket} exists, and who may use it",
        ) from error
    finally:
        await blobs.close()
