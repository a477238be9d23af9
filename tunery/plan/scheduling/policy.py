"""Parameters of the planner. The product has one set; baselines of the literature are others."""

from dataclasses import dataclass
from typing import Final

from schemas.units import HOUR_MS, Ms

MINUTE_MS: Final[Ms] = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How the queue is served."""

    lanes: bool = True  # premium before standard before free
    fair: bool = True  # inside a lane, the tenant with the fewest slots goes first
    # before that, the tenant that has used the least goes first; use counts for half after so long,
    # and a start at once for what is expected; None: use does not count
    share_half_life_ms: Ms | None = None
    # how many times its expected time a request stands back behind shorter ones. With 0 the first
    # come is the first served; with a very large number the shortest is.
    patience: int = 2
    spanning: bool = True  # what is larger than every node may have several; otherwise it waits
    skipping: bool = True  # what fits may start although one before it does not
    # the first that does not fit has a reservation, which no other may delay
    reserving: bool = True
    # what may start before a reservation does so in order of expected time
    shortest_backfill: bool = True
    backfill_max: int = 200  # how many requests are tried behind a reservation in one plan
    preempting: int = 2  # how many lanes, from the first, may stop leases of later lanes
    # largest cost of a preemption to its victim, in millionths of its expected time
    loss_ppm: int = 50_000
    loss_ms_max: Ms = 10 * MINUTE_MS  # the same as a time; the smaller of the two counts
    restart_ms: Ms = 3 * MINUTE_MS  # what a stop and a start cost in any case
    ran_ms_min: Ms = 10 * MINUTE_MS  # a lease is not stopped before it has run so long
    preemptions_max: int = 3  # a job is stopped so often at most
    # while other lanes wait, premium goes first until it holds all slots but those of their largest
    # request
    premium_capped: bool = True
    # slots up to which premium goes first; None: no fixed number
    premium_slots_max: int | None = None
    # a free request that has waited so long is served with the standard lane
    aged_ms: Ms = 16 * HOUR_MS
    # how long a request of each lane for whole nodes should wait at most since it was queued.
    # Leases make way for what has waited longer, the first one due first; premium has its cap
    # instead.
    promised_ms: tuple[Ms, ...] = (5 * MINUTE_MS, 20 * HOUR_MS, 20 * HOUR_MS)
    kept_max: int = 3  # requests of each kind of node that leases make way for at a time; 0: none
    # a lease that has saved nothing for longer makes no way: it may never save
    unsaved_ms_max: Ms = HOUR_MS
    # starts_max, preempts_max: limits of one plan; the next one continues
    starts_max: int = 512
    preempts_max: int = 16


PRODUCT: Final = Policy()
