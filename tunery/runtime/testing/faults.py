"""What goes wrong in a run, drawn from its seed."""

from dataclasses import dataclass, field
from random import Random

from msgspec import Struct

from schemas.units import Ms


class Faults(Struct, frozen=True):
    """Chances are per cent of the operations concerned, while faults are on.

    lost: never in the log; late: in the log after the writer gave up, maybe behind newer claims;
    unanswered: in the log at once, acknowledged too late; doubled: in the log twice, once late.
    """

    lost: int = 0
    late: int = 0
    unanswered: int = 0
    doubled: int = 0
    crashes: int = 0  # per run, each at some await of some process
    pauses: int = 0
    overlaps: int = 0  # per run: two owners are told to own the same partitions
    clock_jumps: int = 0
    damaged: int = 0  # per run: snapshots that rot
    tail_loss: bool = False  # the journal's end is lost while everybody is down


def draw_faults(rng: Random) -> Faults:
    """About a quarter of the runs has each kind; some runs have none at all."""

    def sometimes(high: int) -> int:
        return rng.randint(1, high) if rng.random() < 0.4 else 0

    return Faults(
        lost=sometimes(6),
        late=sometimes(6),
        unanswered=sometimes(6),
        doubled=sometimes(6),
        crashes=sometimes(4),
        pauses=sometimes(3),
        overlaps=sometimes(3),
        clock_jumps=sometimes(3),
        damaged=sometimes(3),
        tail_loss=rng.random() < 0.08,
    )


@dataclass
class Tally:
    """What really happened, counted by kind."""

    counts: dict[str, int] = field(default_factory=dict)

    def add(self, kind: str, count: int = 1) -> None:
        self.counts[kind] = self.counts.get(kind, 0) + count


APPEND_MS_MAX: Ms = 3_000  # after that a writer gives up
SESSION_MS: Ms = 3_000
