"""Key → partition: murmur2, as Java clients do it, so that any client agrees with us."""

from functools import lru_cache

from aiokafka.partitioner import murmur2

from schemas.topics import PARTITIONS

_CACHED_KEYS_MAX = 100_000


@lru_cache(maxsize=_CACHED_KEYS_MAX)
def partition_of(key: bytes) -> int:
    """Partition of a key, for every topic of the catalogue. Raises nothing."""
    return int((murmur2(key) & 0x7FFF_FFFF) % PARTITIONS)
