"""State of the hosts of a process, for `/readyz` and for metrics."""

from collections.abc import Mapping
from typing import Literal, TypeAlias

from tunery.runtime.telemetry.metrics import HOST_RUNNING

FailureReason: TypeAlias = Literal["ended", "cancelled", "hung", "failed", "waits for a server"]


class Health:
    """The hosts that ended unexpectedly and have not run again for a while.

    unconfined: kinds of confinement that this machine lacks, by name, with the reason
    has_started: all hosts have been ready once: partitions are owned, views caught up
    """

    def __init__(self) -> None:
        self._failing: dict[str, FailureReason] = {}
        self.unconfined: Mapping[str, str] = {}
        self.has_started = False

    @property
    def failing(self) -> Mapping[str, FailureReason]:
        """Why each failing host does not run, by name."""
        return self._failing

    def mark_failing(self, host: str, why: FailureReason) -> None:
        """Mark a host that has ended and will be restarted."""
        self._failing[host] = why
        HOST_RUNNING.labels(host).set(0)

    def mark_running(self, host: str) -> None:
        """Mark a host that runs, and has run for a while if it was failing."""
        self._failing.pop(host, None)
        HOST_RUNNING.labels(host).set(1)
