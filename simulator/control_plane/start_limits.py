"""A second account of starts: no lease is ended while its agent is seen to prepare it."""

from typing import Any, Final

from schemas.pool import LeaseAdmitted, LeaseGranted, LeaseKilled, NodesObserved
from schemas.units import Ms

LIMIT_MS: Final[Ms] = 600_000  # of the small base models that simulated jobs train
STILL_MS: Final[Ms] = 600_000
LAST_LIMIT_MS: Final[Ms] = 4 * LIMIT_MS


class StartLimits:
    """Entered event by event; `violations` is what did not hold."""

    def __init__(self) -> None:
        self.violations: list[str] = []
        self._granted: dict[int, Ms] = {}
        self._progress: dict[int, tuple[int, Ms]] = {}  # by lease: bytes, and when they grew

    def enter(self, event: Any, at: Ms) -> None:
        """One more event of the pool."""
        match event:
            case LeaseGranted() | LeaseAdmitted():
                self._granted[event.lease.token.lease] = at
            case NodesObserved():
                for seen in (lease for node in event.seen for lease in node.leases or ()):
                    if seen.prepared_bytes > self._progress.get(seen.lease, (0, 0))[0]:
                        self._progress[seen.lease] = seen.prepared_bytes, at
            case LeaseKilled() if event.reason.code == "start_timeout":
                self._judge(event.lease.token.lease, at)
            case _:
                pass

    def _judge(self, lease: int, at: Ms) -> None:
        waited_ms = at - self._granted[lease]
        still_ms = at - self._progress.get(lease, (0, 0))[1]
        if waited_ms < LIMIT_MS or (still_ms < STILL_MS and waited_ms < LAST_LIMIT_MS):
            text = f"{waited_ms} ms after its grant, {still_ms} ms after its last progress"
            self.violations.append(f"start: lease {lease} is ended {text}")
