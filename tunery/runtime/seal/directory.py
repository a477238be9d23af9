"""Keys as files of one folder, for one machine: a file for each tenant, readable by us alone.

A file is written aside and linked into place, so a reader never sees half a key and of several
writers one wins. A destroyed key leaves an empty file, so that no process makes a new one.
"""

import base64
import binascii
import contextlib
import json
import os
from pathlib import Path
from typing import Final
from urllib.parse import quote

from tunery.runtime.seal.abstract import KEY_BYTES, DataKey, KeyStoreBroken

SUFFIX: Final = ".key"
NAME_BYTES_MAX: Final = 200


class DirectoryKeyStore:
    """Implements `KeyStore`. Keys are cached; the file's identity is checked at every use."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._cache: dict[str, tuple[tuple[int, int, int], DataKey | None]] = {}

    def get(self, tenant: str) -> DataKey | None:
        path = self._path(tenant)
        try:
            return self._read(tenant, path)
        except FileNotFoundError:
            self._create(tenant, path)
            return self._read(tenant, path)

    def find(self, tenant: str) -> DataKey | None:
        try:
            return self._read(tenant, self._path(tenant))
        except FileNotFoundError:
            return None

    def destroy(self, tenant: str) -> None:
        path = self._path(tenant)
        self._cache.pop(tenant, None)
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            self._overwrite(path)
        empty = self._aside(path, b"")
        empty.replace(path)
        self._sync_folder()

    def _path(self, tenant: str) -> Path:
        name = quote(tenant, safe="").replace(".", "%2E") + SUFFIX
        if not tenant or len(name) > NAME_BYTES_MAX:
            raise KeyStoreBroken(f"no file name can be made of the tenant id {tenant[:40]!r}")
        return self._folder / name

    def _read(self, tenant: str, path: Path) -> DataKey | None:
        stat = path.stat()
        identity = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
        cached = self._cache.get(tenant)
        if cached is not None and cached[0] == identity:
            return cached[1]
        key = _parse(path, path.read_bytes())
        self._cache[tenant] = (identity, key)
        return key

    def _create(self, tenant: str, path: Path) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        secret = base64.b64encode(os.urandom(KEY_BYTES)).decode("ascii")
        body = json.dumps({"key_id": f"{tenant}.{os.urandom(4).hex()}", "secret": secret})
        aside = self._aside(path, body.encode("ascii"))
        try:
            path.hardlink_to(aside)
        except FileExistsError:
            pass  # another process was first: its key counts
        except OSError as error:
            raise KeyStoreBroken(f"cannot write {path}: {error}; check the folder") from error
        finally:
            aside.unlink(missing_ok=True)
        self._sync_folder()

    def _aside(self, path: Path, body: bytes) -> Path:
        aside = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
        try:
            handle = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "wb") as file:
                file.write(body)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise KeyStoreBroken(f"cannot write {aside}: {error}; check the folder") from error
        return aside

    def _overwrite(self, path: Path) -> None:
        """Best effort on file systems that write in place; copy-on-write ones keep the old."""
        with path.open("r+b") as file:
            file.write(b"\0" * path.stat().st_size)
            file.flush()
            os.fsync(file.fileno())

    def _sync_folder(self) -> None:
        handle = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _parse(path: Path, body: bytes) -> DataKey | None:
    if not body.strip(b"\0"):
        return None
    try:
        parsed = json.loads(body)
        key = DataKey(str(parsed["key_id"]), base64.b64decode(parsed["secret"], validate=True))
    except (ValueError, KeyError, TypeError, binascii.Error) as error:
        raise KeyStoreBroken(f"{path} is not a key file; restore it from a backup") from error
    if len(key.secret) != KEY_BYTES:
        raise KeyStoreBroken(f"{path} holds a key of the wrong length; restore it from a backup")
    return key
