"""A second account of leases that wait for a cluster: nothing is billed, and all come to an end."""

from typing import Any, Final

from schemas.envelope import Tick
from schemas.pool import (
    CheckpointAccepted,
    LeaseAdmitted,
    LeaseGranted,
    LeaseKilled,
    LeaseStarted,
    LeaseWaits,
    PlacementClosed,
    UsageSliced,
)
from schemas.units import HOUR_MS, Ms

WAIT_MS: Final[Ms] = HOUR_MS
BACK_OFF_MS: Final[Ms] = 60_000  # before a job may have a node again that did not admit it


class AdmissionBooks:
    """Entered decision by decision; `violations` is what did not hold."""

    def __init__(self) -> None:
        self.violations: list[str] = []
        self._leases: dict[tuple[str, int], int] = {}  # by job and attempt
        self._waits: dict[int, Ms] = {}  # leases that wait, and since when
        self._known: set[int] = set()  # leases that have begun, or have waited before
        self._over: set[int] = set()
        self._back_offs: dict[tuple[str, str], Ms] = {}  # until when, by job and node

    def enter(self, command: Any, events: tuple[Any, ...], at: Ms) -> None:
        """One decision of the pool."""
        for event in events:
            self._enter(event, at)
        if isinstance(command, Tick):
            for lease, since in self._waits.items():
                if since + WAIT_MS <= at:
                    self._say(f"lease {lease} waits since {since}")

    def _enter(self, event: Any, at: Ms) -> None:
        match event:
            case LeaseGranted():
                self._leases[event.lease.job_id, event.lease.attempt] = event.lease.token.lease
                for member in event.members:
                    until = self._back_offs.get((event.lease.job_id, member.node_id), 0)
                    if at < until:
                        self._say(f"{event.lease} is on {member.node_id}, barred until {until}")
            case PlacementClosed():
                self._close(event)
                if event.end.reason.code == "not_admitted":
                    for node_id in event.end.node_ids:
                        self._back_offs[event.job_id, node_id] = at + BACK_OFF_MS
            case LeaseKilled():
                since = self._waits.pop(event.lease.token.lease, None)
                is_early = since is not None and at < since + WAIT_MS
                if event.reason.code == "not_admitted" and (since is None or is_early):
                    self._say(f"{event.lease} is given back, it waits since {since}")
            case (
                LeaseWaits()
                | LeaseAdmitted()
                | LeaseStarted()
                | CheckpointAccepted()
                | UsageSliced()
            ):
                self._follow(event, event.lease.token.lease)
            case _:
                pass

    def _close(self, event: PlacementClosed) -> None:
        lease = self._leases.get((event.job_id, event.attempt))
        if lease is None:
            return
        if event.end.reason.code == "not_admitted" and (
            event.end.outcome != "not_started" or event.end.used_gpu_ms
        ):
            self._say(f"lease {lease} was not admitted, and ends with {event.end}")
        self._waits.pop(lease, None)
        self._over.add(lease)

    def _follow(self, event: Any, lease: int) -> None:
        if lease in self._over:
            self._say(f"lease {lease} has ended, and has {event}")
        match event:
            case LeaseWaits():
                if lease in self._known:
                    self._say(f"lease {lease} waits again, or runs")
                self._waits.setdefault(lease, event.since)
            case LeaseAdmitted():
                if self._waits.pop(lease, None) is None:
                    self._say(f"lease {lease} is admitted and did not wait")
                self._known.add(lease)
            case LeaseStarted():
                self._waits.pop(lease, None)
                self._known.add(lease)
            case _:
                if lease in self._waits:
                    self._say(f"lease {lease} waits, and has {event}")

    def _say(self, text: str) -> None:
        self.violations.append(f"admission: {text}")
