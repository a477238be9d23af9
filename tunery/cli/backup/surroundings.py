"""Parts of a backup beside the log: data keys of tenants, and the list of objects in storage."""

import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO, Final, TypeAlias

import msgspec

from tunery.cli.backup.folder import BackupFolder, Inventory
from tunery.local import settings
from tunery.local.errors import LocalError
from tunery.local.paths import DataDir
from tunery.platform.blobs.s3 import S3Blobs, S3Settings
from tunery.platform.seal.abstract import KeyStoreBroken, RootRefused, RootUnavailable
from tunery.platform.seal.directory import SUFFIX, tenant_of
from tunery.platform.seal.files import create_file, overwrite, replace_file
from tunery.platform.seal.key_files import open_file, read_file
from tunery.platform.seal.roots import Roots
from tunery.runtime.blobs.abstract import BlobsUnavailable, Listed

#: lists the objects of storage: name and size of each
ListObjects: TypeAlias = Callable[[], AsyncIterator[Listed]]
SNAPSHOTS: Final = "snapshots/"  # made again from the log
CONTENT_NAME: Final = re.compile(r"/([0-9a-f]{64})(?:\.[^/]*)?$")  # of `blob_key`


# --- keys -----------------------------------------------------------------------------------------


def copy_keys(keystore: Path, folder: BackupFolder) -> dict[str, str | None]:
    """Make the copy of the keys equal to the key store; return the root key of each tenant.

    A key that was destroyed is overwritten in the copy, too. Raises LocalError, KeyStoreBroken.
    """
    names = {path.name for path in keystore.glob(f"[!.]*{SUFFIX}")}
    copied = {path.name for path in folder.keys.glob(f"[!.]*{SUFFIX}") if path.stat().st_size}
    if lost := sorted(copied - names):
        raise LocalError(
            f"{keystore} lacks {len(lost)} keys that the backup has, {lost[0]} among them",
            "set TUNERY_KEYSTORE_DIR to the key store of this installation; for another "
            "installation, choose another folder",
        )
    roots: dict[str, str | None] = {}
    for name in sorted(names):
        source, target = keystore / name, folder.keys / name
        tenant = tenant_of(source)
        file = read_file(source)
        if file is not None and file.root is None:
            raise LocalError(
                f"the data key of {tenant} is in the clear, and whoever has a backup could use it",
                "run `tunery encryption wrap`, then this command again",
            )
        roots[tenant] = None if file is None else file.root
        body = b"" if file is None else source.read_bytes()
        if target.exists() and target.read_bytes() == body:
            continue
        if target.exists() and not body:
            with target.open("r+b") as former:
                overwrite(former, b"\0")
        replace_file(target, body)
    return roots


def unopened_keys(folder: BackupFolder, roots_folder: Path) -> dict[str, str]:
    """Return the tenants whose keys do not open with the root keys of a folder, each with why."""
    roots = Roots(roots_folder)
    unopened = {}
    for path in sorted(folder.keys.glob(f"[!.]*{SUFFIX}")):
        try:
            if (file := read_file(path)) is not None:
                open_file(path, file, roots)
        except (RootRefused, RootUnavailable, KeyStoreBroken) as error:
            unopened[tenant_of(path)] = str(error)
    return unopened


def restore_keys(folder: BackupFolder, keystore: Path) -> int:
    """Copy the keys into a key store; return how many there are.

    Raises LocalError where another key of a tenant is there, KeyStoreBroken.
    """
    keystore.mkdir(mode=0o700, parents=True, exist_ok=True)
    count = 0
    for path in sorted(folder.keys.glob(f"[!.]*{SUFFIX}")):
        body, target = path.read_bytes(), keystore / path.name
        if not create_file(target, body) and target.read_bytes() != body:
            raise LocalError(
                f"{target} is another key than the one of the backup",
                "restore into an empty installation: move its key store away",
            )
        count += bool(body)
    return count


# --- objects --------------------------------------------------------------------------------------


@asynccontextmanager
async def open_objects(folders: DataDir, environ: Mapping[str, str]) -> AsyncIterator[ListObjects]:
    """Connect to $TUNERY_S3_ENDPOINT, or to the storage of the stack. Raises LocalError."""
    storage = storage_settings(folders, environ)
    blobs = S3Blobs(storage)
    try:
        yield lambda: blobs.listed("")
    except BlobsUnavailable as error:
        raise LocalError(
            f"object storage at {storage.endpoint} failed: {error}", "see `tunery status`"
        ) from error
    finally:
        await blobs.close()


def storage_settings(folders: DataDir, environ: Mapping[str, str]) -> S3Settings:
    """Settings of $TUNERY_S3_ENDPOINT, or of the stack's storage. Raises LocalError."""
    if "s3" in settings.replaced(environ):
        address, access, secret, bucket = (
            environ[name] for name in ("TUNERY_S3_ENDPOINT", *settings.S3_NEEDS)
        )
        return S3Settings(address, access, secret, bucket)
    stack = settings.of_stack(folders, environ)
    return S3Settings(stack.s3_endpoint, stack.s3_access_key, stack.s3_secret_key, stack.s3_bucket)


async def write_inventory(
    folder: BackupFolder, number: int, list_objects: ListObjects
) -> Inventory:
    """List all objects but snapshots, with the hashes that are in their names."""
    stem = f"inventories/{number:06}"
    objects, total = 0, 0
    with folder.part(stem) as file:
        async for name, size, _ in list_objects():
            if not name.startswith(SNAPSHOTS):
                _write_object(file, name, size)
                objects, total = objects + 1, total + size
    return Inventory(file=folder.complete(stem), objects=objects, bytes=total)


def _write_object(file: IO[bytes], name: str, size: int) -> None:
    named = CONTENT_NAME.search(name)
    file.write(msgspec.json.encode((name, size, named and named[1])) + b"\n")


async def missing_objects(
    expected: Iterable[tuple[str, int]], list_objects: ListObjects
) -> list[str]:
    """Return the names of what storage lacks of a list, or has in another size."""
    present = {name: size async for name, size, _ in list_objects()}
    return [name for name, size in expected if present.get(name) != size]
