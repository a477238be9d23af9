"""`wanted` × `phase` as a table: what a client's command means in each state."""

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

from schemas.job import Phase, Wanted

Change: TypeAlias = Literal["cancel", "pause", "resume"]
Answer: TypeAlias = Literal["accept", "repeat", "refuse"]

WANTS: Final[Mapping[Change, Wanted]] = {"cancel": "cancelled", "pause": "paused", "resume": "run"}
# From here on the outcome is being written down: nothing can be changed any more.
TOO_LATE: Final[frozenset[Phase]] = frozenset({"registering", "done"})
# A cancelled job stays cancelled. Resuming what runs is a mistake worth a message; saying cancel or
# pause twice is not.
ANSWERS: Final[Mapping[tuple[Change, Wanted], Answer]] = {
    ("cancel", "run"): "accept",
    ("cancel", "paused"): "accept",
    ("cancel", "cancelled"): "repeat",
    ("pause", "run"): "accept",
    ("pause", "paused"): "repeat",
    ("pause", "cancelled"): "refuse",
    ("resume", "run"): "refuse",
    ("resume", "paused"): "accept",
    ("resume", "cancelled"): "refuse",
}


def answer(change: Change, wanted: Wanted, phase: Phase) -> Answer:
    """Return how to answer a client's change to a job in this state."""
    return "refuse" if phase in TOO_LATE else ANSWERS[change, wanted]
