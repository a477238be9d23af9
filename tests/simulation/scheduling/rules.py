"""Promises of the scheduler: rules that random clusters are checked for."""

from enum import StrEnum
from typing import Final


class Rule(StrEnum):
    """One promise. The numbers are those of docs/explanation/scheduling.md."""

    CAPACITY = "1: slots of a node are held once; what is held and what is free are all of them"
    GANG = "2: a start holds exactly its slots, at once; what waits holds none"
    LEGAL = "3: device, memory and state of a node allow what is placed on it"
    LOCALITY = "3: a job is in its domain, or has waited long enough for it"
    HEAD = "4: what starts beside a reservation does not delay it"
    OWNER = "4: a node is reserved for one request; the first that waits for a kind has one"
    KEPT = "4: a late request for whole nodes has nodes, or leases make way for it"
    STARVATION = "5: what can be placed starts in the end"
    RANK = "5: among requests alike, the first in rank starts first"
    CAP = "5: premium beyond its cap preempts nothing, and starts only where no other request could"
    USE = "6: use is sliced once, never above its cap, and a placement ends once"
    VICTIM = "7: victims are behind the request, inside the published bound; none is superfluous"
    BOUND = "7: slots that are freed for a request are for it alone"
    FLAPPING = "8: what was stopped for a job never stops that job"
    IDLE = "9: no free slot beside a request that fits and that no reservation holds back"
    SAME = "10: the same facts lead to the same decisions, also from a snapshot, in any order"
    REASON = "11: what waits has a reason, and an expected start that is not in the past"
    PROGRESS = "12: what a checkpoint saved is neither lost nor given back"
    SPOT = "13: spot nodes run what allows them, bears them, and would be done in time without them"
    LOST = "13: nothing is placed on a node that leaves; what it ran is told to end, or has ended"


#: What cannot be checked because the product does not have it, by name.
MISSING: Final = {
    "6: hard limits of GPU-hours": "the job decider holds them: simulator.control_plane checks it",
}


class Violation(AssertionError):
    """A broken promise. rule: which."""

    def __init__(self, rule: Rule, what: str) -> None:
        super().__init__(f"{rule}: {what}")
        self.rule = rule


class Judge:
    """Raises what is violated, of the rules that it was told to watch.

    has_raised: nothing that follows in its world means anything.
    """

    def __init__(self, watched: frozenset[Rule] = frozenset(Rule)) -> None:
        self._watched = watched
        self.has_raised = False

    def check(self, rule: Rule, holds: bool, what: object = "") -> None:
        """Raise Violation where a watched rule does not hold."""
        if not holds and rule in self._watched:
            self.has_raised = True
            raise Violation(rule, str(what))
