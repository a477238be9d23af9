"""Messages between the agents of a lease of several nodes: members that are there or have ended.

In production it goes over connections between them. A member whose agent is gone, or that the
network does not reach any more, has ended as well, and no reason is known.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from schemas.training import AttemptOutcome, FailureCause

LOST: Final[tuple[AttemptOutcome, FailureCause]] = "lost", "platform"


@dataclass
class SimGang:
    """State of the processes of one lease on several nodes.

    joined: nodes whose process has connected to that of the first member
    ends: outcome and cause of each member that ended, by node
    has_begun: all members have joined, and the first one works
    drains: a member was asked to stop, so all stop after the same step
    """

    joined: set[str] = field(default_factory=set)
    ends: dict[str, tuple[AttemptOutcome, FailureCause | None]] = field(default_factory=dict)
    has_begun: bool = False
    drains: bool = False

    def end(self, node_id: str, outcome: AttemptOutcome, cause: FailureCause | None) -> None:
        """A member ends; the first end counts."""
        self.ends.setdefault(node_id, (outcome, cause))

    def lose(self, node_id: str) -> None:
        """Make a member silent from now on."""
        self.ends.setdefault(node_id, LOST)

    def failed(self, others: Iterable[str]) -> tuple[str, FailureCause | None] | None:
        """The first of these members that failed or was lost, and why; None: all go on."""
        for node_id in others:
            outcome, cause = self.ends.get(node_id, ("succeeded", None))
            if outcome in ("failed", "lost"):
                return node_id, cause
        return None

    def have_ended(self, others: Iterable[str]) -> bool:
        """True if all these members have ended."""
        return self.ends.keys() >= {*others}
