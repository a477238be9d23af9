"""The plan of a seed: what people and jobs do, and which faults happen."""

from collections.abc import Mapping
from random import Random
from typing import Final

from msgspec import Struct

from simulator.engine.faults import KINDS as SERVICES
from simulator.engine.faults import Faults, draw_faults

#: Steps that faults may take, at most so many of each. Nothing here has more than seconds.
KINDS: Final[Mapping[str, int]] = {**dict.fromkeys(SERVICES, 1), "crash": 2, "all asleep": 1}
#: What follows from the numbers of a plan, and from several things at once.
CONSEQUENCES: Final = (
    *("check failed", "rows refused", "adapter refused", "job left early"),
    *("files changed", "tenant erased", "month passed"),
)


class ArtifactsSize(Struct, frozen=True):
    """The size of a run."""

    tenants: int = 2
    faulty_s: int = 12  # how long there are faults
    snapshot_every: int = 12
    patience_s: int = 400  # time after the faults, until nothing is under way


class ArtifactsPlan(Struct, frozen=True):
    """`files` (sent at once or in parts), `jobs` and `requests` are of all tenants together.

    `failures`: per cent of tries of work that fail; `rotten`: of files no row of which can be
    learnt, and of adapters that nobody may publish; `hasty`: of jobs that end before they train.
    `drifts`: how often the files of a base model change, or are as before. `erasure`: a tenant is
    erased at the end. `months`: how many pass once faults are over.
    """

    seed: int
    faults: Faults
    files: int = 5
    jobs: int = 3
    requests: int = 14
    failures: int = 0
    rotten: int = 0
    hasty: int = 0
    drifts: int = 0
    erasure: bool = False
    months: int = 1


def draw(seed: int, size: ArtifactsSize) -> ArtifactsPlan:
    """The plan of a seed: the same for the same size, regardless of the process."""
    rng = Random(f"{seed}/artifacts")
    return ArtifactsPlan(
        seed,
        draw_faults(rng, 1_000 * size.faulty_s - 3_000, KINDS),
        files=rng.randint(3, 6),
        jobs=rng.randint(3, 6),
        requests=rng.randint(15, 40),
        failures=rng.choice((0, 0, 20, 60)),
        rotten=rng.choice((0, 20)),
        hasty=rng.choice((0, 30)),
        drifts=rng.choice((0, 0, 1, 3)),
        erasure=rng.random() < 0.3,
        months=rng.choice((0, 1, 1)),
    )
