"""Java accepts the cache that the set-up wrote."""

import subprocess

from tunery.local import kafka

TIMEOUT_S = 240


def start(*flags: str) -> subprocess.CompletedProcess[str]:
    """Run a tool of Kafka that prints an id. `AOTMode=on`: a cache that does not fit ends Java."""
    tool = ("-cp", kafka.class_path(), "kafka.tools.StorageTool", "random-uuid")
    argv = (kafka.java(), *flags, "-XX:AOTMode=on", *kafka.SHORT_LIVED, *tool)
    return subprocess.run(argv, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


def test_java_starts_kafka_from_the_cache_of_the_set_up() -> None:
    flags = kafka.cache_flags()
    assert flags, "there is no cache: run `make setup`"
    done = start(*flags)
    assert done.returncode == 0, done.stderr
    assert "[aot" not in done.stderr


def test_a_cache_of_something_else_would_be_noticed() -> None:
    assert start(f"-XX:AOTCache={kafka.class_path().partition(':')[0]}").returncode != 0
