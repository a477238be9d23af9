"""A second account of keys: only the agent that holds an open lease is given keys of it."""

from typing import Any

from schemas.lease_keys import LeaseHolder, LeaseKeysRequested, LeaseKeysSealed
from schemas.pool import LeaseGranted, PlacementClosed


class KeyBooks:
    """Entered event by event; `violations` is what did not hold."""

    def __init__(self) -> None:
        self.violations: list[str] = []
        self._holders: dict[int, frozenset[str]] = {}  # by lease: incarnations of its members
        self._leases: dict[tuple[str, int], int] = {}  # by job and attempt
        self._asked: set[LeaseHolder] = set()

    def enter(self, event: Any) -> None:
        """One more event of the pool."""
        match event:
            case LeaseGranted():
                lease = event.lease.token.lease
                self._holders[lease] = frozenset(member.incarnation for member in event.members)
                self._leases[event.lease.job_id, event.lease.attempt] = lease
            case PlacementClosed():
                self._holders.pop(self._leases.get((event.job_id, event.attempt), 0), None)
            case LeaseKeysRequested():
                self._judge(event.holder, "asks for")
                self._asked.add(event.holder)
            case LeaseKeysSealed():
                self._judge(event.holder, "is given")
                if event.holder not in self._asked:
                    self.violations.append(
                        f"keys: lease {event.holder.lease} has keys that were not requested"
                    )
            case _:
                pass

    def _judge(self, holder: LeaseHolder, does: str) -> None:
        lease, incarnation = holder.lease, holder.incarnation
        if incarnation not in self._holders.get(lease, frozenset()):
            self.violations.append(f"keys: {incarnation} {does} keys of lease {lease}, not its own")
