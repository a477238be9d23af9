"""Keys in memory: for tests and the simulator."""

import os
from collections.abc import Callable

from tunery.runtime.seal.abstract import KEY_BYTES, DataKey


def random_bytes(count: int) -> bytes:
    return os.urandom(count)


class MemoryKeyStore:
    """Implements `KeyStore`. `draw` is the source of randomness (seeded in the simulator)."""

    def __init__(self, draw: Callable[[int], bytes] = random_bytes) -> None:
        self._draw = draw
        self._keys: dict[str, DataKey | None] = {}

    def get(self, tenant: str) -> DataKey | None:
        if tenant not in self._keys:
            key_id = f"{tenant}.{self._draw(4).hex()}"
            self._keys[tenant] = DataKey(key_id, self._draw(KEY_BYTES))
        return self._keys[tenant]

    def find(self, tenant: str) -> DataKey | None:
        return self._keys.get(tenant)

    def destroy(self, tenant: str) -> None:
        self._keys[tenant] = None
