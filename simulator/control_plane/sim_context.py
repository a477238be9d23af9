"""The state that all parts of a run share: the log, random numbers, and the decisions so far."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Final

from schemas.account import PRICES_PARTITION
from schemas.ids import SESSION as SESSION_PREFIX
from schemas.topics import ACCOUNT, JOB, POOL, SESSION
from schemas.training import AttemptOutcome, FailureCause
from simulator.control_plane.plan import SESSIONS, ControlPlanePlan, Size
from simulator.control_plane.samples import POOL as POOL_NAME
from simulator.engine.broker import Broker
from simulator.engine.sim_log import SimLog
from tunery.runtime.bus.partitioner import partition_of

# Messages between the agents of a lease of several nodes: members that are there or have ended.
#
# In production it goes over connections between them. A member whose agent is gone, or that the
# network does not reach any more, has ended as well, and no reason is known.

LOST: Final[tuple[AttemptOutcome, FailureCause]] = "lost", "platform"


@dataclass
class SimGang:
    """State of the processes of one lease on several nodes.

    joined: nodes whose process has connected to that of the first member
    ends: outcome and cause of each member that ended, by node
    has_begun: all members have joined, and the first one works
    drains: a member was asked to stop, so all stop after the same step
    """

    joined: set[str] = field(default_factory=set)
    ends: dict[str, tuple[AttemptOutcome, FailureCause | None]] = field(default_factory=dict)
    has_begun: bool = False
    drains: bool = False

    def end(self, node_id: str, outcome: AttemptOutcome, cause: FailureCause | None) -> None:
        """A member ends; the first end counts."""
        self.ends.setdefault(node_id, (outcome, cause))

    def lose(self, node_id: str) -> None:
        """Make a member silent from now on."""
        self.ends.setdefault(node_id, LOST)

    def failed(self, others: Iterable[str]) -> tuple[str, FailureCause | None] | None:
        """The first of these members that failed or was lost, and why; None: all go on."""
        for node_id in others:
            outcome, cause = self.ends.get(node_id, ("succeeded", None))
            if outcome in ("failed", "lost"):
                return node_id, cause
        return None

    def have_ended(self, others: Iterable[str]) -> bool:
        """True if all these members have ended."""
        return self.ends.keys() >= {*others}


SESSIONS_FIRST: Final = 2_000
POOL_PARTITION: Final = partition_of(POOL_NAME.encode())


def tenants(count: int) -> tuple[str, ...]:
    return tuple(f"tenant-{number}" for number in range(count))


def session_of(tenant: str) -> str:
    """Return the id of the one session of a tenant; its number is that of no job."""
    return f"{SESSION_PREFIX}{SESSIONS_FIRST + int(tenant.rpartition('-')[2])}"


def active(size: Size, *, sessions: bool = False) -> dict[str, frozenset[int]]:
    """Partitions in use, by topic."""
    by_tenant = frozenset(partition_of(name.encode()) for name in tenants(size.tenants))
    of_accounts = by_tenant | {PRICES_PARTITION}
    partitions_in_use = {ACCOUNT: of_accounts, JOB: by_tenant, POOL: frozenset((POOL_PARTITION,))}
    if sessions:
        ids = map(session_of, tenants(size.tenants))
        partitions_in_use[SESSION] = frozenset(partition_of(name.encode()) for name in ids)
    return {
        topic.name: partitions
        for stream, partitions in partitions_in_use.items()
        for topic in (stream.commands, stream.journal)
    }


class SimContext(SimLog):
    """Everything of a run of the control plane that its parts share."""

    def __init__(self, plan: ControlPlanePlan, size: Size, broker: Broker, rng: Random) -> None:
        # sessions only where they are played: other seeds mean what they did
        played = (SESSION,) if SESSIONS in plan.errands else ()
        super().__init__(plan.seed, broker, (ACCOUNT, JOB, POOL, *played))
        self.plan, self.size, self.rng = plan, size, rng
        self.session_weights: dict[str, str] = {}  # by the manifest of their checkpoint
        self.gangs: dict[int, SimGang] = defaultdict(SimGang)  # by lease

    def happens(self, per_cent: int) -> bool:
        return self.broker.chance(per_cent)
