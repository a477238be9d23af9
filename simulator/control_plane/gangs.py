"""What the agents of a lease of several nodes tell each other: who is there, and who has ended.

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
    """Of one lease.

    joined: nodes whose agents have met that of the first member
    ends: of members, by node: how, and why
    has_begun: all have joined, and the first one works
    drains: a member was told to stop, so all do after the same step
    """

    joined: set[str] = field(default_factory=set)
    ends: dict[str, tuple[AttemptOutcome, FailureCause | None]] = field(default_factory=dict)
    has_begun: bool = False
    drains: bool = False

    def end(self, node_id: str, outcome: AttemptOutcome, cause: FailureCause | None) -> None:
        """A member ends; the first end counts."""
        self.ends.setdefault(node_id, (outcome, cause))

    def lose(self, node_id: str) -> None:
        """Nothing is heard of a member any more."""
        self.ends.setdefault(node_id, LOST)

    def failed(self, others: Iterable[str]) -> tuple[str, FailureCause | None] | None:
        """The first of these members that failed or was lost, and why; None: all go on."""
        for node_id in others:
            outcome, cause = self.ends.get(node_id, ("succeeded", None))
            if outcome in ("failed", "lost"):
                return node_id, cause
        return None

    def have_ended(self, others: Iterable[str]) -> bool:
        """Whether all of these have."""
        return self.ends.keys() >= {*others}
