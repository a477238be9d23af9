"""Keys that open the blobs at one path: made from data keys, or handed over by who has those."""

import os
from collections import OrderedDict
from collections.abc import Iterable
from typing import Final, Protocol

from tunery.runtime.blobs.frames import PathKey, path_key
from tunery.runtime.seal.abstract import KEY_BYTES, DataKey, Keyring, KeyStore, KeyStoreBroken

LOST: Final = "00000000"  # the version of a key that nobody has
HANDED_MAX: Final = 10_000


class PathKeys(Protocol):
    """Raises KeyStoreBroken, RootUnavailable, RootRefused."""

    def current(self, tenant: str, path: str) -> PathKey:
        """What encrypts a blob that is written there now."""

    def find(self, tenant: str, path: str, version: bytes) -> PathKey | None:
        """What opens a blob of this version of the data key; None when that was destroyed."""


class TenantPathKeys:
    """Implements `PathKeys` with the data keys of tenants.

    is_node: it makes no keys, and a tenant without one is an error: what a node wrote with a key of
      its own could be read by nobody else.
    """

    def __init__(self, keys: KeyStore, *, is_node: bool = False) -> None:
        self._keys, self._is_node = keys, is_node

    def current(self, tenant: str, path: str) -> PathKey:
        """Raises KeyStoreBroken."""
        ring = self._keys.get(tenant)
        self._check(tenant, ring)
        # what is stored for an erased tenant can be read by nobody, and is removed by its erasure
        lost = DataKey(f"{tenant}.{LOST}", os.urandom(KEY_BYTES))
        return path_key(lost if ring is None else ring.current, path)

    def find(self, tenant: str, path: str, version: bytes) -> PathKey | None:
        return next((key for key in self.all(tenant, path) if key.version == version), None)

    def all(self, tenant: str, path: str) -> tuple[PathKey, ...]:
        """For whoever shall read this path without a data key; none after an erasure."""
        ring = self._keys.find(tenant)
        self._check(tenant, ring)
        return () if ring is None else tuple(path_key(key, path) for key in ring.versions)

    def _check(self, tenant: str, ring: Keyring | None) -> None:
        """Raises KeyStoreBroken."""
        if self._is_node and ring is None:
            raise KeyStoreBroken(
                f"this node has no key of tenant {tenant}: mount the folders of keys that services "
                "share (TUNERY_KEYSTORE_DIR, TUNERY_ROOTS_DIR), or set TUNERY_BLOB_ENCRYPTION=off "
                "everywhere"
            )


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
