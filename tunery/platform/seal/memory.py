"""Keys in memory: for tests and the simulator."""

import os
from collections.abc import Callable

from tunery.platform.seal.abstract import KEY_BYTES, DataKey, Keyring


def random_bytes(count: int) -> bytes:
    return os.urandom(count)


class MemoryKeyStore:
    """Implements `KeyStore`. `draw` is the source of randomness (seeded in the simulator)."""

    def __init__(self, draw: Callable[[int], bytes] = random_bytes) -> None:
        self._draw = draw
        self._rings: dict[str, Keyring | None] = {}

    def get(self, tenant: str) -> Keyring | None:
        if tenant not in self._rings:
            self._rings[tenant] = Keyring((self._draw_key(tenant),))
        return self._rings[tenant]

    def find(self, tenant: str) -> Keyring | None:
        return self._rings.get(tenant)

    def rotate(self, tenant: str) -> Keyring | None:
        ring = self.get(tenant)
        if ring is not None:
            ring = Keyring((*ring.versions, self._draw_key(tenant)))
            self._rings[tenant] = ring
        return ring

    def destroy(self, tenant: str) -> None:
        self._rings[tenant] = None

    def _draw_key(self, tenant: str) -> DataKey:
        return DataKey(f"{tenant}.{self._draw(4).hex()}", self._draw(KEY_BYTES))
