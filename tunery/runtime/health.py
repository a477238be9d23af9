"""Whether the hosts of a process run as they should, for `/readyz` and for metrics."""

from collections.abc import Mapping
from typing import Literal, TypeAlias

from tunery.runtime.telemetry.metrics import HOST_RUNNING

FailureReason: TypeAlias = Literal["ended", "cancelled", "hung", "failed", "waits for a server"]


class Health:
    """The hosts that ended unexpectedly and have not run again for a while.

    unconfined: why walls around processes are missing on this machine, by their name
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
        """The host has ended and is to run again."""
        self._failing[host] = why
        HOST_RUNNING.labels(host).set(0)

    def mark_running(self, host: str) -> None:
        """The host runs, and has done so for a while if it was failing."""
        self._failing.pop(host, None)
        HOST_RUNNING.labels(host).set(1)
