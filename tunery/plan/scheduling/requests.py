"""What waits, what runs, and where."""

from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple, TypeAlias, get_args

from msgspec import structs

from schemas.training import Device, NodeConstraints
from schemas.units import Ms

# Slots on nodes: a request that starts holds these, and nothing else.
Seats: TypeAlias = tuple[tuple[str, int], ...]
LANES: tuple[Literal["premium"], Literal["standard"], Literal["free"]] = (
    "premium",
    "standard",
    "free",
)
PREMIUM, STANDARD, FREE = range(len(LANES))


PriceClass: TypeAlias = Literal["reserved", "on_demand", "spot"]
PRICE_CLASSES: tuple[PriceClass, ...] = get_args(PriceClass)
RESERVED, ON_DEMAND, SPOT = range(len(PRICE_CLASSES))
ANY_NODE: Final = NodeConstraints()
GIB: Final = 1 << 30


class Kind(NamedTuple):
    """What requests choose nodes by: nodes of one kind are alike to all of them.

    device, accelerator: as in `PlanNode`.
    memory_gib: to the nearest one: machines of one model differ by less. The least counts.
    price: index of its price class in `PRICE_CLASSES`.
    warned, taints: as in `PlanNode`.
    """

    device: Device
    memory_gib: int
    accelerator: str = ""
    price: int = ON_DEMAND
    warned: bool = False
    taints: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RequestClass:
    """What decides where a request fits. Requests of one class are alike to every node.

    slots: how many it needs at the same time.
    device: kind of device that every slot must be.
    memory_bytes: what one slot needs.
    excluded: nodes that failed under its job: it gets others while there are any.
    barred: nodes that it may not have in any case.
    constraints: what else it demands of nodes.
    avoids_spot: it gets others than spot nodes while there are any that could hold it.
    on_one_node: it waits where no node has so many slots; otherwise it may have several nodes.
    """

    slots: int
    device: Device
    memory_bytes: int
    excluded: tuple[str, ...] = ()
    barred: tuple[str, ...] = ()
    constraints: NodeConstraints = ANY_NODE
    avoids_spot: bool = False
    on_one_node: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A placement that waits.

    job_id, tenant: whose it is.
    lane: index in `LANES`.
    needs: what decides where it fits.
    submitted_at: when its job was submitted; a retry keeps its place by it.
    p50_ms, p90_ms: elapsed time that it should need, and should not pass.
    estimate_ms: what it was estimated to need when it was submitted; None: `p50_ms`.
    preemptions: how many attempts of the job were stopped for others.
    domain_until: when it takes nodes of any domain; None: never, or it does. Readers ask for it.
    """

    job_id: str
    tenant: str
    lane: int
    needs: RequestClass
    submitted_at: Ms
    p50_ms: Ms
    p90_ms: Ms
    estimate_ms: Ms | None = None
    preemptions: int = 0
    domain_until: Ms | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A lease that holds slots.

    key: names it; a job may have an old lease that has not freed its slots yet.
    tenant, lane, p50_ms, p90_ms, estimate_ms, preemptions: as in its `Request`.
    memory_bytes: what each of its slots uses.
    seats: what it holds.
    granted_at: since when.
    started_at: since when it works; None: it has not begun.
    saved_at: until when its work is in a checkpoint, or when it began.
    ends_by: when it is killed at the latest, once it was told to end; None: it was not.
    """

    key: str
    tenant: str
    lane: int
    memory_bytes: int
    p50_ms: Ms
    p90_ms: Ms
    preemptions: int
    seats: Seats
    granted_at: Ms
    started_at: Ms | None = None
    saved_at: Ms = 0
    ends_by: Ms | None = None
    estimate_ms: Ms | None = None

    @property
    def slots(self) -> int:
        """All that it holds."""
        return sum(slots for _, slots in self.seats)

    def slots_on(self, node_id: str) -> int:
        """What it holds of one node."""
        return sum(slots for name, slots in self.seats if name == node_id)


def whole_gib(memory_bytes: int) -> int:
    """Memory by which nodes are alike. Kernels and drivers keep some MB, not always as many."""
    return (memory_bytes + GIB // 2) // GIB


def price_class_of(*, spot: bool, reserved: bool) -> PriceClass:
    """The price class of a node, as its agent describes it."""
    return "spot" if spot else "reserved" if reserved else "on_demand"


def demands(asked: NodeConstraints | None, *, any_domain: bool = False) -> NodeConstraints:
    """What a placement demands of nodes; when it should be done says nothing about that.

    any_domain: it has waited long enough for nodes of its domain.
    """
    if asked is None:
        return ANY_NODE
    domain = "" if any_domain else asked.domain
    return structs.replace(asked, finish_by=None, domain=domain, domain_wait_ms=None)


def avoids_spot(asked: NodeConstraints | None, decided: bool | None) -> bool:
    """Whether a placement allows spot nodes, and its pool has decided that it is better off others.

    Where there are no others it gets spot nodes all the same: it would wait for ever otherwise.
    """
    return asked is not None and asked.spot is True and decided is False


def is_on_one_node(role: str) -> bool:
    """Whether work of a role has all its slots on one node: trainings need not."""
    return role != "train"


def tolerating(asked: NodeConstraints, taints: tuple[str, ...]) -> NodeConstraints:
    """The same demands of what tolerates these taints."""
    return structs.replace(asked, tolerations=taints)


def granted(request: Request, seats: Seats, at: Ms, key: str) -> Running:
    """The lease of a request that gets these seats now."""
    return Running(
        key=key,
        tenant=request.tenant,
        lane=request.lane,
        memory_bytes=request.needs.memory_bytes,
        p50_ms=request.p50_ms,
        p90_ms=request.p90_ms,
        estimate_ms=request.estimate_ms,
        preemptions=request.preemptions,
        seats=seats,
        granted_at=at,
    )


@dataclass(frozen=True, slots=True)
class PlanNode:
    """A node that may get leases.

    node_id: its name; ties go to the first.
    slots: how many it has.
    device: what each slot is.
    memory_bytes: memory of one device (cuda) or of the node, which its leases share (cpu).
    domain: nodes of one domain are connected faster than others.
    accelerator: model of its devices; empty: not known.
    price_class: reserved: it is paid for in any case; spot: it may be taken away.
    warned: it may soon be taken away, and gets something only where no other node fits.
    taints: only requests that tolerate all of them get it.
    kind: what requests choose nodes by.
    """

    node_id: str
    slots: int
    device: Device
    memory_bytes: int
    domain: str = ""
    accelerator: str = ""
    price_class: PriceClass = "on_demand"
    warned: bool = False
    taints: tuple[str, ...] = ()
    kind: Kind = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        price = PRICE_CLASSES.index(self.price_class)
        memory_gib = whole_gib(self.memory_bytes)
        kind = Kind(self.device, memory_gib, self.accelerator, price, self.warned, self.taints)
        object.__setattr__(self, "kind", kind)
