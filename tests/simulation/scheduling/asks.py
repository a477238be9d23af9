"""Requests of jobs to a pool, in steps that make a difference."""

from dataclasses import dataclass
from typing import Final

from schemas.training import NodeConstraints

HOUR: Final = 3_600_000
MINUTE: Final = 60_000
TAINT: Final = "research"
DOMAINS: Final = ("rack-0", "rack-1")
GB: Final = 1_000_000_000


@dataclass(frozen=True)
class Ask:
    """Request of a job, in steps that make a difference."""

    lane: int
    tenant: int
    slots: int
    hours: int
    cuda: bool
    gigabytes: int
    accelerator: str = ""
    spot: bool | None = None
    tolerates: bool = False
    domain: str = ""
    domain_wait: int | None = None  # minutes; None: as long as it takes
    slack: int = 0  # hours beyond its expected time until it should be done; 0: it does not say

    def constraints_at(self, at: int) -> NodeConstraints | None:
        """Which nodes it may run on, of what is submitted at this moment."""
        said = (self.accelerator, self.tolerates, self.domain)
        if not any(said) and self.spot is None:
            return None
        wait_ms = None if self.domain_wait is None else self.domain_wait * MINUTE
        finish_by = at + (2 * self.hours + self.slack) * HOUR if self.slack else None
        return NodeConstraints(
            accelerator=self.accelerator,
            spot=self.spot,
            finish_by=finish_by,
            tolerations=(TAINT,) if self.tolerates else (),
            domain=self.domain,
            domain_wait_ms=wait_ms if self.domain else None,
        )
