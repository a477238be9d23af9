"""The plan of a run of the core's scenario, and the result of the run."""

from collections import Counter
from dataclasses import dataclass, field
from hashlib import blake2b
from random import Random
from typing import Any, Final, NamedTuple

from msgspec import Struct, structs

from examples.first_stream import SEATS, SEATS_AGGREGATE
from schemas.units import Ms
from simulator.engine.broker import Broker
from simulator.engine.faults import KINDS, Faults, FaultStep, FaultTally, draw_faults
from simulator.event_core.releases import SEATS_STRICTER
from simulator.event_core.streams import TALLY, TALLY_AGGREGATE
from simulator.event_core.views import Rows
from tunery.runtime.bus.partitioner import partition_of
from tunery.runtime.hosts.owner import Settled
from tunery.runtime.store.abstract import CommandResult
from tunery.runtime.verbs import Aggregate

TENANTS: Final = ("ada", "bob", "cyd")
ACTIVE: Final = {
    SEATS.name: frozenset(partition_of(name.encode()) for name in TENANTS),
    TALLY.name: frozenset(partition_of(f"{name}-tally".encode()) for name in TENANTS),
}
REQUESTS: Final = 7  # per tenant
UPGRADED_REQUESTS: Final = 24  # the same, where a release comes
FAULTY_MS: Final[Ms] = 22_000
TAIL_LOST, RECREATED, EMPTIED, UPGRADE = (
    "journal tail lost",
    "commands recreated",
    "database lost",
    "rolling upgrade",
)
RARE: Final = {TAIL_LOST: 0.08, RECREATED: 0.1, EMPTIED: 0.1, UPGRADE: 0.15}
ARCHIVED: Final = "journals archived"
ARCHIVED_CHANCE: Final = 0.3  # of runs; then it happens twice
NEWEST: Final = 1_000_000  # number of a process that runs the next release, where there is one


class EventCorePlan(Struct, frozen=True):
    """requests: number per tenant; failures: percentage of the attempts at an effect.

    standby: processes fold partitions of others, too.
    """

    seed: int
    faults: Faults
    requests: int = REQUESTS
    failures: int = 0
    standby: bool = False


class Trim(NamedTuple):
    """Commands below `before` were deleted when the journal had `end` records."""

    stream: str
    partition: int
    before: int
    end: int


@dataclass
class EventCoreRun:
    """The result of a run."""

    plan: EventCorePlan
    tally: FaultTally
    broker: Broker
    views: dict[str, dict[tuple[str, int], list[bytes]]] = field(default_factory=dict)
    stops: list[str] = field(default_factory=list)  # of the readers without faults
    named: list[str] = field(default_factory=list)  # of hosts
    forgiven: list[str] = field(default_factory=list)  # beginnings of stops that had to come
    died: list[str] = field(default_factory=list)  # hosts that ended with an error
    trims: list[Trim] = field(default_factory=list)
    settled: list[Settled] = field(default_factory=list)
    worked: Counter[str] = field(default_factory=Counter)  # attempts at each effect
    repeated: list[str] = field(default_factory=list)  # effects that ran again after a rebuild
    next_from: int | None = None  # the first process of the next release
    back_from: int = NEWEST  # the first process after it was taken back
    next_release: Aggregate[Any] = SEATS_STRICTER
    rows: Rows = field(default_factory=dict)
    command_results: dict[str, CommandResult | None] = field(default_factory=dict)
    trace: list[str] = field(default_factory=list)
    finished: bool = False

    def fingerprint(self) -> str:
        """Hash of everything that was ever written: equal for equal runs."""
        digest = blake2b(digest_size=16)
        for partition in sorted(self.broker.history):
            for record in self.broker.history[partition]:
                digest.update(repr((partition, *record)).encode())
        digest.update(repr(self.rows).encode())
        return digest.hexdigest()

    def decider(self, stream: str, owner: str) -> Aggregate[Any]:
        """How the process that claimed under this name decides."""
        if stream == TALLY.name:
            return TALLY_AGGREGATE
        number = int(owner[1:])
        taken_back = self.back_from <= number < NEWEST
        newer = self.next_from is not None and number >= self.next_from and not taken_back
        return self.next_release if newer else SEATS_AGGREGATE

    def had_to_come(self, stop: str) -> bool:
        """The loss was real. No release may stop because of the one that comes after it."""
        return stop.startswith(tuple(self.forgiven))


def plan(seed: int) -> EventCorePlan:
    """Draw faults and failure rates from the seed."""
    rng = Random(f"{seed}/faults")  # runs must repeat
    rare = {kind: 1 for kind, chance in RARE.items() if rng.random() < chance}
    if TAIL_LOST in rare:
        rare = {TAIL_LOST: 1}  # most invariants are off then
    faults = draw_faults(rng, FAULTY_MS - 3_000, KINDS)
    steps = [FaultStep(rng.randint(3_000, FAULTY_MS - 6_000), kind) for kind in rare]
    later = Random(f"{seed}/archive")  # came later: a seed keeps the rest of its plan
    if later.random() < ARCHIVED_CHANCE and TAIL_LOST not in rare:
        steps += [FaultStep(later.randint(6_000, FAULTY_MS - 3_000), ARCHIVED) for _ in range(2)]
    ordered = tuple(sorted((*faults.steps, *steps), key=lambda step: step.at_ms))
    return EventCorePlan(
        seed,
        structs.replace(faults, steps=ordered),
        # so that clients are there before, during and after it
        requests=UPGRADED_REQUESTS if UPGRADE in rare else REQUESTS,
        failures=rng.choice((0, 10, 40)),
        standby=rng.random() < 0.3,
    )
