"""Parameters of the planner. The product has one set; baselines of the literature are others."""

from dataclasses import dataclass
from typing import Final

from schemas.units import HOUR_MS, Ms

MINUTE_MS: Final[Ms] = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How the queue is served.

    lanes: premium before standard before free.
    fair: inside a lane, the tenant with the fewest slots goes first.
    share_half_life_ms: before that, the tenant that has used the least goes first; use counts for
        half after so long, and a start at once for what is expected. None: use does not count.
    patience: how many times its expected time a request stands back behind shorter ones. With 0
        the first come is the first served; with a very large number the shortest is.
    spanning: what is larger than every node may have several; otherwise it waits.
    skipping: what fits may start although one before it does not.
    reserving: the first that does not fit has a reservation, which no other may delay.
    shortest_backfill: what may start before a reservation does so in order of expected time.
    backfill_max: how many requests are tried behind a reservation in one plan.
    preempting: how many lanes, from the first, may stop leases of later lanes.
    loss_ppm: what a preemption may cost its victim, of its expected time.
    loss_ms_max: and at most.
    restart_ms: what a stop and a start cost in any case.
    ran_ms_min: a lease is not stopped before it has run so long.
    preemptions_max: a job is stopped so often at most.
    premium_capped: while other lanes wait, premium goes first until it holds all slots but those of
        their largest request.
    premium_slots_max: premium goes first up to so many slots; None: there is no such number.
    aged_ms: a free request that has waited so long is served with the standard lane.
    starts_max, preempts_max: of one plan; the next one goes on.
    """

    lanes: bool = True
    fair: bool = True
    share_half_life_ms: Ms | None = None
    patience: int = 2
    spanning: bool = True
    skipping: bool = True
    reserving: bool = True
    shortest_backfill: bool = True
    backfill_max: int = 200
    preempting: int = 2
    loss_ppm: int = 50_000
    loss_ms_max: Ms = 10 * MINUTE_MS
    restart_ms: Ms = 3 * MINUTE_MS
    ran_ms_min: Ms = 10 * MINUTE_MS
    preemptions_max: int = 3
    premium_capped: bool = True
    premium_slots_max: int | None = None
    aged_ms: Ms = 16 * HOUR_MS
    starts_max: int = 512
    preempts_max: int = 16


PRODUCT: Final = Policy()
