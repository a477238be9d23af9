"""What a round does to the soak's processes: drawn by seed, every kind in each hand of ten."""

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
    "restart",  # PostgreSQL stopped in order
    "failpoint",  # an owner exits at a named place
    "terminate",  # SIGTERM of an owner
]
#: the first five of a hand are one of each class, so that a short soak has them all
FIRST: Final[tuple[Kind, ...]] = ("kill", "zombie", "broker", "database", "failpoint")
REST: Final[tuple[Kind, ...]] = ("terminate", "failpoint", "failpoint", "failpoint", "pause")
#: every other hand stops PostgreSQL in order, and terminates once more instead of a pause
SWAPPED: Final[dict[Kind, Kind]] = {"database": "restart", "pause": "terminate"}


@dataclass(frozen=True)
class Round:
    kind: Kind
    victim: str
    point: str = ""  # where it exits

    @property
    def name(self) -> str:
        return f"{self.kind} {self.point}".rstrip()


def drawn(count: int, seed: int) -> list[Round]:
    """The same rounds for the same seed; fewer of them are the first of more."""
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
