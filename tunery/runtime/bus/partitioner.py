"""Key → partition: murmur2, as Java clients do it, so that any client agrees with us."""

from functools import lru_cache
from typing import Final

from schemas.streams import PARTITIONS

_CACHED_KEYS_MAX: Final = 100_000
_SEED: Final = 0x9747B28C  # of Kafka's clients
_FACTOR: Final = 0x5BD1E995
_SHIFT: Final = 24
_WORD: Final = 4  # bytes
_32_BITS: Final = 0xFFFF_FFFF


@lru_cache(maxsize=_CACHED_KEYS_MAX)
def partition_of(key: bytes, partitions: int | None = None) -> int:
    """Partition of a key. partitions: of the topic, as in its `Topic`. Raises nothing."""
    return (murmur2(key) & 0x7FFF_FFFF) % (partitions or PARTITIONS)


def murmur2(data: bytes) -> int:
    """Return the 32-bit MurmurHash2 of the bytes, as Kafka's Java clients do."""
    whole = len(data) - len(data) % _WORD
    value = _SEED ^ len(data)
    for start in range(0, whole, _WORD):
        word = int.from_bytes(data[start : start + _WORD], "little") * _FACTOR & _32_BITS
        word = (word ^ word >> _SHIFT) * _FACTOR & _32_BITS
        value = value * _FACTOR & _32_BITS ^ word
    if whole < len(data):
        value = (value ^ int.from_bytes(data[whole:], "little")) * _FACTOR & _32_BITS
    value = (value ^ value >> 13) * _FACTOR & _32_BITS
    return value ^ value >> 15
