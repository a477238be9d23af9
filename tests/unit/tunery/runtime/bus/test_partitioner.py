import pytest

from schemas.streams import PARTITIONS
from tunery.runtime.bus.partitioner import partition_of


@pytest.mark.parametrize(
    # Values of org.apache.kafka.common.utils.Utils.murmur2, from Kafka's own tests.
    ("key", "hashed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_partitions_are_those_of_java_clients(key: bytes, hashed: int) -> None:
    assert partition_of(key) == (hashed & 0x7FFF_FFFF) % PARTITIONS
