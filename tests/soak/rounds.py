"""The faults of a soak's rounds, drawn from a seed; ten rounds contain every kind of fault."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Final, Literal, TypeAlias

from tests.soak.failpoints import CLAIM_POINTS, POINTS

OWNERS: Final = ("owner-1", "owner-2", "owner-3")
Kind: TypeAlias = Literal[
    "kill",  # kill -9 of an owner
    "pause",  # SIGSTOP beyond the session timeout, at any moment
    "zombie",  # the same just before an append, which therefore happens after the successor's claim
    "broker",  # kill -9 of the broker
    "database",  # kill -9 of PostgreSQL
    "restart",  # an orderly stop of PostgreSQL
    "failpoint",  # an owner exits at a failpoint
    "terminate",  # SIGTERM of an owner
]
#: the first five of ten rounds are one of each class, so that a short soak has them all
FIRST: Final[tuple[Kind, ...]] = ("kill", "zombie", "broker", "database", "failpoint")
REST: Final[tuple[Kind, ...]] = ("terminate", "failpoint", "failpoint", "failpoint", "pause")
#: in every other ten rounds PostgreSQL is stopped in order, and an owner gets SIGTERM, not SIGSTOP
SWAPPED: Final[dict[Kind, Kind]] = {"database": "restart", "pause": "terminate"}


@dataclass(frozen=True)
class Round:
    kind: Kind
    victim: str
    point: str = ""  # where it exits

    @property
    def name(self) -> str:
        return f"{self.kind} {self.point}".rstrip()


def draw_rounds(count: int, seed: int) -> list[Round]:
    """The first `count` rounds of a seed; the same seed always gives the same rounds."""
    return list(islice(_rounds(random.Random(seed)), count))


def _rounds(rng: random.Random) -> Iterator[Round]:
    points = [*POINTS, *CLAIM_POINTS]
    rng.shuffle(points)
    points_in_turn = cycle(points)
    for number in cycle((0, 1)):
        hand = [*rng.sample(FIRST, len(FIRST)), *rng.sample(REST, len(REST))]
        for kind in [SWAPPED.get(kind, kind) for kind in hand] if number else hand:
            point = next(points_in_turn) if kind == "failpoint" else ""
            yield Round(kind, rng.choice(OWNERS), point)
