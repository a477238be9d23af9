"""The plan of a seed: what tenants do, and which faults happen."""

from collections.abc import Mapping
from random import Random
from typing import Final

from msgspec import Struct

from simulator.engine.faults import KINDS as SERVICES
from simulator.engine.faults import Faults, draw_faults

#: Faults of services and servers, and of machines.
KINDS: Final[Mapping[str, int]] = {
    **dict.fromkeys(SERVICES, 1),
    "crash": 3,
    "power cut": 2,  # a machine stops with all it runs, and comes back
    "agent killed": 2,  # what it started runs on, until the next agent sweeps
    "agent frozen": 3,  # it is paused, perhaps for longer than the TTL, and continues
    "clock ahead": 2,
    "stray cancellation": 3,
    "attempt cancelled": 4,  # its task in the agent, by mistake
    "node departed": 1,  # in order, and comes back
    "machine asleep": 2,  # its monotonic clock stands, the broker's time runs
    "all asleep": 1,  # for hours, while no process and no machine notices any time
    "node broken": 2,  # all that runs on it fails by itself, for some seconds
    "zone lost": 1,  # most of the machines lose power at once
    "machine taken away": 2,  # by its cloud, half a minute or two after a notice
}
#: What follows from the numbers of a plan, and from several things at once.
CONSEQUENCES: Final = (
    "outage across a month",
    *("loaded node departed", "loaded machine taken away", "node failed by itself"),
    *("exit noticed late", "slow disk", "keys withheld"),
    *(
        "plan to come",
        "prices changed",
        "second currency billed",
        "rate billed",
        "submission crossed a plan change",
        "answers priced",
    ),
    *("serving pool set", "serving term renewed", "serving pool removed"),
    *("several nodes", "lost one of several nodes", "network between nodes cut"),
    *("tenant suspended", "tenant resumed", "submission of a suspended tenant"),
    *("exporter killed", "exporter met another"),
    *("lease waited", "lease admitted late", "lease admitted twice", "lease given back"),
    *("running lease said to wait", "ended lease said to run", "node resized"),
)

#: What happens besides jobs (`errands.py`), each once where a plan names it.
ERRANDS: Final = (
    *("keys", "endpoints", "tracking"),
    *("terms", "adjustments", "prepaid", "month", "erasure"),
    *("sweep", "looks", "judged again", "reports"),
    *("demands", "orders", "devices", "withdrawn keys"),
)
ERRANDS_AT_ONCE: Final = 2
ELASTIC_SHARE: Final = 0.15  # of runs
NOT_ELASTIC: Final = (7, 24, 25, 118, 190)  # seeds that show broken rules of other nodes
#: Errands that take much of a run, some of which are alone in it.
LONG_ERRANDS: Final = ("forgotten nodes", "late on spot nodes", "lost spot nodes", "serving months")
#: Errands that only seeds from LATER_FROM on have, so that others mean what they did.
SESSIONS: Final = "sessions"
LATER_ERRANDS: Final = ("batches", "imports", SESSIONS)
LATER_FROM: Final = 700_001
LATER_SHARE: Final = 0.2  # of runs


class Size(Struct, frozen=True):
    """The size of a run. `faulty_s`: how long there are faults; jobs come in its first half.

    `snapshot_every`: entries of a partition.
    """

    tenants: int = 2
    nodes: int = 3
    faulty_s: int = 90
    snapshot_every: int = 15
    patience_s: int = 6_000  # time after the faults, until every job has ended


class ControlPlanePlan(Struct, frozen=True):
    """`jobs`, `changes` (of mind) and `new_limits` are of all tenants together.

    `failures`: per cent of attempts that fail by themselves; `rotten`: of checkpoints that cannot
    be loaded any more; `stubborn`: of attempts that do not listen to a notice; `stuck`: of attempts
    whose process makes no progress while its agent lives.
    `narrow`: limits leave room for few holds at once. `long`: some trainings reach their cap.
    `new_month`: the full hour in the middle of the run begins a month; `month_outage`: the broker
    is away while it does.
    `new_prices`: moves of a plan to another price book, perhaps of another currency;
    `suspensions`: of tenants, each followed by a resumption; `unnoticed`: per cent of attempts
    whose agent notices the end of their process late; `slow_disks`: of attempts that read for long
    before they start; `keyless`: of leases that nobody gives keys.
    `serving`: changes of serving pools, the first of which creates one.
    `answers`: counts of tokens, where there are new prices: only these have some of answers.
    `gangs`: how many of the jobs need more slots than any machine has; `cuts`: per cent of the
    looks at a lease of several nodes at which the network between them is gone.
    `elastic`: one node more is the quota of a cluster's queue.
    `errands`: of ERRANDS and LONG_ERRANDS. `closings`: two months are closed once all jobs have
    ended.
    """

    seed: int
    faults: Faults
    jobs: int = 4
    changes: int = 0
    new_limits: int = 0
    failures: int = 0
    rotten: int = 0
    stubborn: int = 0
    stuck: int = 0
    narrow: bool = False
    long: bool = False
    new_month: bool = False
    month_outage: bool = False
    new_prices: int = 0
    suspensions: int = 0
    unnoticed: int = 0
    slow_disks: int = 0
    keyless: int = 0
    serving: int = 0
    answers: int = 0
    gangs: int = 0
    cuts: int = 0
    elastic: bool = False
    errands: tuple[str, ...] = ()
    closings: bool = False


def draw(seed: int, size: Size) -> ControlPlanePlan:
    """The plan of a seed: the same for the same size, regardless of the process."""
    rng = Random(
        f"{seed}/town"
    )  # only the name of a random stream; another name would change the runs of all seeds

    def sometimes(high: int, chance: float = 0.35) -> int:
        return rng.randint(1, high) if rng.random() < chance else 0

    long = rng.random() < 0.04
    terms = Random(f"{seed}/terms")
    new_prices = terms.choice((0, 0, 0, 1, 2))
    several = Random(f"{seed}/gangs")
    gangs = several.choice((0, 0, 0, 1, 2))
    others = Random(f"{seed}/errands")
    errands = tuple(others.sample(ERRANDS, others.choice((0, ERRANDS_AT_ONCE, ERRANDS_AT_ONCE))))
    longer = Random(f"{seed}/long errands")
    if not errands and longer.random() < 0.4:
        errands = (longer.choice(LONG_ERRANDS),)
    if seed >= LATER_FROM and Random(f"{seed}/later errands").random() < LATER_SHARE:
        errands += LATER_ERRANDS
    return ControlPlanePlan(
        seed,
        draw_faults(rng, 1_000 * size.faulty_s - 3_000, KINDS),
        jobs=rng.randint(2, 5),
        changes=sometimes(6, 0.6),
        new_limits=sometimes(2, 0.3),
        failures=sometimes(30),
        rotten=sometimes(40),
        stubborn=rng.choice((0, 100)) if long else sometimes(40),
        stuck=Random(f"{seed}/stuck").choice((0, 0, 0, 0, 30)),
        narrow=rng.random() < 0.4,
        long=long,
        new_month=rng.random() < 0.3,
        new_prices=new_prices,
        suspensions=terms.choice((0, 0, 1)),
        unnoticed=terms.choice((0, 0, 0, 30)),
        month_outage=Random(f"{seed}/months").random() < 0.5,
        slow_disks=Random(f"{seed}/disks").choice((0, 0, 0, 0, 30)),
        keyless=Random(f"{seed}/keys").choice((0, 0, 0, 0, 20)),
        serving=Random(f"{seed}/serving").choice((0, 0, 0, 0, 0, 2, 4)),
        answers=Random(f"{seed}/answers").choice((0, 3, 6)) if new_prices else 0,
        gangs=gangs,
        cuts=several.choice((0, 20)) if gangs else 0,
        elastic=seed not in NOT_ELASTIC
        and Random(f"{seed}/cluster's queue").random() < ELASTIC_SHARE,
        errands=errands,
        closings=bool(errands) and others.random() < 0.4,
    )
