"""The faults of a run, drawn from its seed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Final

from msgspec import Struct

from schemas.units import Ms

APPEND_MS_MAX: Final[Ms] = 3_000  # after that a writer gives up
SESSION_MS: Final[Ms] = 3_000

#: Steps that any scenario can take, and how many a run has at most.
KINDS: Final[Mapping[str, int]] = {
    "crash": 4,  # at some await of some process
    "pause": 3,  # maybe longer than the session
    "overlap": 2,  # two owners are assigned the same partitions
    "rebalance": 2,  # while a batch is in flight
    "clock jump": 3,  # the broker's, back
    "slow reader": 2,  # one record at a time, late
    "broker restart": 2,
    "store away": 2,
    "blobs away": 1,
    "snapshot torn": 2,
    "snapshot stale": 2,
    "stray cancellation": 4,  # of a task that is at some await of some process
    "clock ahead": 2,  # the broker's: for some seconds, by up to two hours
}
#: Kinds that came later. They are drawn from a copy, so that a seed keeps the rest of its plan.
LATER_KINDS: Final = (
    *("stray cancellation", "clock ahead", "attempt cancelled"),
    *("machine asleep", "all asleep", "node broken", "zone lost", "machine taken away"),
)


class FaultStep(Struct, frozen=True):
    """One fault at a time of the run; its target follows from seed, time and kind."""

    at_ms: Ms
    kind: str


class Faults(Struct, frozen=True):
    """Chances are per cent of the operations concerned, while faults are on.

    lost: never in the log; late: in the log after the writer gave up, maybe behind newer claims;
    unanswered: appended at once, acknowledged too late; doubled: in the log twice, once late;
    slow: appended at once, acknowledged just in time;
    stale_ends: questions for the log's end answered with an older one; store_unanswered: writes to
    the SQL store whose answer is lost, done at once or late.
    """

    lost: int = 0
    late: int = 0
    unanswered: int = 0
    doubled: int = 0
    stale_ends: int = 0
    store_unanswered: int = 0
    slow: int = 0
    steps: tuple[FaultStep, ...] = ()

    def has(self, kind: str) -> bool:
        return any(step.kind == kind for step in self.steps)


def draw_faults(rng: Random, until_ms: Ms, kinds: Mapping[str, int] = KINDS) -> Faults:
    """Every kind in about a third of the runs; some runs have none at all.

    `kinds`: at most how many steps of each kind; they come before `until_ms`.
    """

    def sometimes(high: int, source: Random = rng) -> int:
        return source.randint(1, high) if source.random() < 0.35 else 0

    lost, late, unanswered, doubled = (sometimes(6) for _ in range(4))
    stale_ends, store_unanswered, slow = sometimes(90), sometimes(10), sometimes(15)
    steps = [
        FaultStep(rng.randint(500, until_ms), kind)
        for kind, most in kinds.items()
        if kind not in LATER_KINDS
        for _ in range(sometimes(most))
    ]
    later = Random()  # it takes over the state of a seeded one
    later.setstate(rng.getstate())
    steps += [
        FaultStep(later.randint(500, until_ms), kind)
        for kind in LATER_KINDS
        if kind in kinds
        for _ in range(sometimes(kinds[kind], later))
    ]
    steps.sort(key=lambda step: step.at_ms)
    return Faults(lost, late, unanswered, doubled, stale_ends, store_unanswered, slow, tuple(steps))


@dataclass
class FaultTally:
    """Counts of the faults that happened, by kind."""

    counts: dict[str, int] = field(default_factory=dict)

    def add(self, kind: str, count: int = 1) -> None:
        self.counts[kind] = self.counts.get(kind, 0) + count
