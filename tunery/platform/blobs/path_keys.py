"""Keys that open the blobs at one path: derived from data keys, or handed over."""

import os
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Final, Protocol

from tunery.platform.blobs.frames import FORM, PathKey, former_path_key, narrow, path_key
from tunery.platform.seal.abstract import KEY_BYTES, DataKey, KeyStore, KeyStoreBroken

LOST: Final = "00000000"  # version of a random key that is not kept
HANDED_MAX: Final = 10_000


class PathKeys(Protocol):
    """Raises KeyStoreBroken, KeyUnavailable, RootRefused."""

    def current(self, tenant: str, path: str) -> PathKey:
        """Return the key that encrypts new blobs at this path."""

    def find(self, tenant: str, path: str, version: bytes) -> PathKey | None:
        """Return the key for blobs of this data key version; None once that was destroyed."""


class TenantPathKeys:
    """Implements `PathKeys` with the data keys of tenants."""

    def __init__(self, keys: KeyStore) -> None:
        self._keys = keys

    def current(self, tenant: str, path: str) -> PathKey:
        ring = self._keys.get(tenant)
        # files of an erased tenant cannot be read, and are removed by its erasure
        lost = DataKey(f"{tenant}.{LOST}", os.urandom(KEY_BYTES))
        return path_key(lost if ring is None else ring.current, path)

    def find(self, tenant: str, path: str, version: bytes) -> PathKey | None:
        return next((key for key in self.all(tenant, path) if key.version == version), None)

    def all(self, tenant: str, path: str) -> tuple[PathKey, ...]:
        """Return the key that opens this path without a data key; none after an erasure.

        A folder has none for blobs of the former form, whose keys followed from no folder.
        """
        ring = self._keys.find(tenant)
        versions = () if ring is None else ring.versions
        former = () if path.endswith("/") else (former_path_key(key, path) for key in versions)
        return (*(path_key(key, path) for key in versions), *former)


class LeasePathKeys:
    """Implements `PathKeys` of a lease: exactly the keys that it was given, and no others.

    What it was not given raises KeyStoreBroken: it is there, and it is not for this lease.
    """

    def __init__(self) -> None:
        self._reads: dict[tuple[str, bytes], PathKey] = {}
        self._writes: dict[str, PathKey] = {}

    def add(self, path: str, keys: Iterable[PathKey]) -> None:
        """Allow reads of the blob at a path, or of those below it if it ends with a slash."""
        for key in keys:
            self._reads[path, key.version] = key

    def add_folder(self, folder: str, key: PathKey) -> None:
        """Allow writes below a folder, which ends with a slash, and reads of the written blobs."""
        self._writes[folder] = key
        self._reads[folder, key.version] = key

    def current(self, tenant: str, path: str) -> PathKey:
        """Raises KeyStoreBroken."""
        for folder, rest in _folders(path):
            if folder in self._writes:
                return narrow(self._writes[folder], rest)
        raise KeyStoreBroken(f"this lease was given no key with which {path} may be written")

    def find(self, tenant: str, path: str, version: bytes) -> PathKey:
        """Raises KeyStoreBroken."""
        if (path, version) in self._reads:
            return self._reads[path, version]
        for folder, rest in _folders(path):
            if (folder, version) in self._reads and version.startswith(FORM):
                return narrow(self._reads[folder, version], rest)
        raise KeyStoreBroken(f"this lease was given no key that opens {path}")


def _folders(path: str) -> Iterator[tuple[str, str]]:
    """The folders that a path is below, and what follows each of them."""
    for end, character in enumerate(path, 1):
        if character == "/" and end < len(path):
            yield path[:end], path[end:]


class HandedPathKeys:
    """Implements `PathKeys` of a process without data keys: it reads what keys were handed for."""

    def __init__(self) -> None:
        self._keys: OrderedDict[tuple[str, bytes], PathKey] = OrderedDict()

    def add(self, path: str, keys: Iterable[PathKey]) -> None:
        """Keep keys; those that were handed over first are forgotten first."""
        for key in keys:
            self._keys[path, key.version] = key
            self._keys.move_to_end((path, key.version))
        while len(self._keys) > HANDED_MAX:
            self._keys.popitem(last=False)

    def current(self, tenant: str, path: str) -> PathKey:
        """Raises RuntimeError: it is a defect."""
        raise RuntimeError(f"this process writes nothing of tenants, such as {path} of {tenant}")

    def find(self, tenant: str, path: str, version: bytes) -> PathKey | None:
        return self._keys.get((path, version))
