"""Keys as files of one folder: a file for each tenant, readable by us alone.

A file is written aside and put into place whole, so a reader never sees half a key, and of several
writers one wins. A destroyed key leaves an empty file, so that no process makes a new one.
The lock of the folder guards changes of existing files.
"""

import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote

from tunery.platform.seal.abstract import (
    KEY_BYTES,
    DataKey,
    KeyAbsent,
    Keyring,
    KeyStoreBroken,
    RootUnavailable,
)
from tunery.platform.seal.files import (
    create_file,
    identity_of,
    lock_folder,
    overwrite,
    replace_file,
)
from tunery.platform.seal.key_files import KeyFile, open_file, read_file, seal_file
from tunery.platform.seal.roots import DEFAULT, Roots

SUFFIX: Final = ".key"
NAME_BYTES_MAX: Final = 200
KEPT_S: Final = 300.0  # how long a key is used before its root is asked again
AGAIN_S: Final = 30.0  # after a root that did not answer


@dataclass(frozen=True)
class _Opened:
    identity: tuple[int, int, int]
    ring: Keyring | None
    ask_again_s: float


class DirectoryKeyStore:
    """Implements `KeyStore`. Keys are cached; the file's identity is checked at every use.

    roots: the root keys, of which `default` wraps new keys; without it they are in the clear.
    now_s: seconds of a clock that never goes back.
    creates: whether `get` makes a key; else a tenant without one is KeyAbsent.
    """

    def __init__(
        self,
        folder: Path,
        roots: Roots | None = None,
        now_s: Callable[[], float] = time.monotonic,
        *,
        creates: bool = True,
    ) -> None:
        self._folder, self._creates = folder, creates
        self._roots = roots
        self._now_s = now_s
        self._cache: dict[str, _Opened] = {}

    def get(self, tenant: str) -> Keyring | None:
        """Raises what the port names."""
        path = self._path(tenant)
        try:
            return self._read(tenant, path)
        except FileNotFoundError:
            if not self._creates:
                raise KeyAbsent(tenant, str(self._folder)) from None
            self._create(tenant, path)
            return self._read(tenant, path)

    def find(self, tenant: str) -> Keyring | None:
        """Raises what the port names."""
        try:
            return self._read(tenant, self._path(tenant))
        except FileNotFoundError:
            if not self._creates:
                raise KeyAbsent(tenant, str(self._folder)) from None
            return None

    def rotate(self, tenant: str) -> Keyring | None:
        if self.get(tenant) is None:
            return None
        with lock_folder(self._folder):
            path, file = self._path(tenant), self.stored(tenant)
            if file is None:
                return None
            ring = open_file(path, file, self._roots)
            more = Keyring((*ring.versions, _draw_key(tenant)))
            replace_file(path, seal_file(more, file.root, self._roots))
        return self.get(tenant)

    def destroy(self, tenant: str) -> None:
        path = self._path(tenant)
        self._cache.pop(tenant, None)
        with lock_folder(self._folder):
            with contextlib.suppress(FileNotFoundError), path.open("r+b") as file:
                overwrite(file, b"\0")
            replace_file(path, b"")

    def tenants(self) -> list[str]:
        """Tenants whose key was made and not destroyed, also by processes that do it now."""
        with lock_folder(self._folder):
            paths = sorted(self._folder.glob(f"[!.]*{SUFFIX}"))
        return [tenant_of(path) for path in paths if path.stat().st_size]

    def stored(self, tenant: str) -> KeyFile | None:
        """Return the key file of a tenant, its versions still wrapped; None: there is no key.

        Raises KeyStoreBroken.
        """
        try:
            return read_file(self._path(tenant))
        except FileNotFoundError:
            return None

    def wrap_anew(self, tenant: str, root: str | None = None) -> bool:
        """Wrap all versions with the newest version of a root, by default of the same one.

        Keys in the clear are wrapped by `default`. False where there is no key.
        Raises KeyStoreBroken, RootUnavailable, RootRefused; the file is then as it was.
        """
        path = self._path(tenant)
        with lock_folder(self._folder):
            file = self.stored(tenant)
            if file is None:
                return False
            ring = open_file(path, file, self._roots)
            body = seal_file(ring, root or file.root or DEFAULT, self._roots)
            with path.open("r+b") as former:
                replace_file(path, body)
                if file.root is None:
                    overwrite(former, b" ")  # a late reader must not mistake it for a destroyed key
        return True

    def _path(self, tenant: str) -> Path:
        name = quote(tenant, safe="").replace(".", "%2E") + SUFFIX
        if not tenant or len(name) > NAME_BYTES_MAX:
            raise KeyStoreBroken(f"no file name can be made of the tenant id {tenant[:40]!r}")
        return self._folder / name

    def _read(self, tenant: str, path: Path) -> Keyring | None:
        """Raises FileNotFoundError and what the port names."""
        identity, now_s = identity_of(path), self._now_s()
        cached = self._cache.get(tenant)
        if cached is not None and cached.identity != identity:
            cached = None
        if cached is not None and now_s < cached.ask_again_s:
            return cached.ring
        try:
            file = read_file(path)
            ring = None if file is None else open_file(path, file, self._roots)
            opened = _Opened(identity, ring, now_s + KEPT_S)
        except RootUnavailable:
            if cached is None:
                raise
            opened = _Opened(identity, cached.ring, now_s + AGAIN_S)
        except KeyStoreBroken:
            self._cache.pop(tenant, None)
            raise
        self._cache[tenant] = opened
        return opened.ring

    def _create(self, tenant: str, path: Path) -> None:
        root = None if self._roots is None else DEFAULT
        with lock_folder(self._folder):  # so that its root is not forgotten meanwhile
            if not path.exists():
                ring = Keyring((_draw_key(tenant),))
                create_file(path, seal_file(ring, root, self._roots))


def tenant_of(path: Path) -> str:
    """Return the tenant whose key a file has."""
    return unquote(path.name.removesuffix(SUFFIX))


def _draw_key(tenant: str) -> DataKey:
    return DataKey(f"{tenant}.{os.urandom(4).hex()}", os.urandom(KEY_BYTES))
