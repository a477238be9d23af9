"""Alarms for partitions that stopped and need an operator: a log line, a metric, `/readyz`."""

import logging
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

from tunery.runtime.journal.acceptance import PartitionStopped
from tunery.runtime.telemetry.catalogue import Gauge
from tunery.runtime.telemetry.logs import log_event
from tunery.runtime.telemetry.metrics import PARTITION_STOPPED

LOG: Final = logging.getLogger("tunery.journal")
_stopped: dict[str, set[tuple[str, int]]] = {}  # hosts → stream and partition


def sound(host: str, stream: str, stopped: PartitionStopped) -> None:
    """`stream`: the one whose partition the host does not serve any more."""
    _stopped_gauge(host, stream, stopped.partition).set(1)
    _stopped.setdefault(host, set()).add((stream, stopped.partition))
    where = "" if stopped.stream == stream else " --commands"
    log_event(
        LOG,
        logging.CRITICAL,
        "partition.stopped",
        host=host,
        why=stopped,
        stream=stream,
        partition=stopped.partition,
        offset=stopped.offset,
        kind=type(stopped).__name__,
        look=f"tunery journal inspect {stream} {stopped.partition} {stopped.offset}{where}",
    )


def silence(host: str, stream: str, partition: int) -> None:
    """The host serves the partition, or tries to."""
    _stopped_gauge(host, stream, partition).set(0)
    _stopped.get(host, set()).discard((stream, partition))


def stopped_partitions() -> Mapping[str, Sequence[str]]:
    """Hosts of this process with the partitions that they do not serve, as `stream/partition`."""
    return {
        host: [f"{stream}/{partition}" for stream, partition in sorted(partitions)]
        for host, partitions in sorted(_stopped.items())
        if partitions
    }


@lru_cache(maxsize=1_024)  # hosts × partitions; readers say it again each time that they begin
def _stopped_gauge(host: str, stream: str, partition: int) -> Gauge:
    return PARTITION_STOPPED.labels(host, stream, partition)
