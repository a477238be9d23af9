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
    """Properties of nodes that requests choose by: nodes of one kind are alike to all requests."""

    # device, accelerator: see `PlanNode`
    device: Device
    memory_gib: int  # least memory, to the nearest GiB: machines of one model differ by less
    accelerator: str = ""
    price: int = ON_DEMAND  # index of its price class in `PRICE_CLASSES`
    # warned, taints, fabric: see `PlanNode`
    warned: bool = False
    taints: tuple[str, ...] = ()
    fabric: bool = True


@dataclass(frozen=True, slots=True)
class RequestClass:
    """Properties that decide where a request fits: every node treats a class alike."""

    slots: int  # number of slots that it needs at the same time
    device: Device  # kind of device that every slot must be
    memory_bytes: int  # memory that one slot needs
    # nodes that failed under its job, avoided while there are others
    excluded: tuple[str, ...] = ()
    barred: tuple[str, ...] = ()  # nodes that it may not have in any case
    constraints: NodeConstraints = ANY_NODE  # further demands on nodes
    avoids_spot: bool = False  # no spot nodes while there are others that could hold it
    # it waits where no node has so many slots; otherwise it may have several nodes
    on_one_node: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Placement that waits."""

    # job_id, tenant: its job and the tenant of the job
    job_id: str
    tenant: str
    lane: int  # index in `LANES`
    needs: RequestClass  # class that decides where it fits
    submitted_at: Ms  # submission of its job; a retry keeps its place in the queue by it
    # p50_ms, p90_ms: median and 90th percentile of its elapsed time
    p50_ms: Ms
    p90_ms: Ms
    # time from which this attempt waits; None: from the submission of its job
    queued_at: Ms | None = None
    estimate_ms: Ms | None = None  # estimate at submission; None: `p50_ms`
    preemptions: int = 0  # number of attempts of the job that were stopped for others
    # time from which it takes nodes of any domain; None: never, or already. Readers compute it.
    domain_until: Ms | None = None

    @property
    def waits_since(self) -> Ms:
        """The moment from which its wait counts against what its lane promises."""
        return self.submitted_at if self.queued_at is None else self.queued_at


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """Lease that holds slots."""

    key: str  # unique name; a job may have an old lease that has not freed its slots yet
    # tenant, lane, p50_ms, p90_ms, preemptions, estimate_ms, submitted_at: see its `Request`
    tenant: str
    lane: int
    memory_bytes: int  # memory that each of its slots uses
    p50_ms: Ms
    p90_ms: Ms
    preemptions: int
    seats: Seats  # slots that it holds
    granted_at: Ms  # time of the grant
    started_at: Ms | None = None  # time at which its work started; None: not yet
    saved_at: Ms = 0  # time of its last checkpoint, or of the start
    # latest time at which it is killed, after the request to end; None: no request
    ends_by: Ms | None = None
    estimate_ms: Ms | None = None
    submitted_at: Ms = 0

    @property
    def slots(self) -> int:
        """All that it holds."""
        return sum(slots for _, slots in self.seats)

    def slots_on(self, node_id: str) -> int:
        """Return the number of slots that the lease holds on a node."""
        return sum(slots for name, slots in self.seats if name == node_id)


def whole_gib(memory_bytes: int) -> int:
    """Memory by which nodes are alike. Kernels and drivers keep some MB, not always as many."""
    return (memory_bytes + GIB // 2) // GIB


def price_class_of(*, spot: bool, reserved: bool) -> PriceClass:
    """The price class of a node, as its agent describes it."""
    return "spot" if spot else "reserved" if reserved else "on_demand"


def demands(asked: NodeConstraints | None, *, any_domain: bool = False) -> NodeConstraints:
    """Return the demands of a placement on nodes, without its deadline.

    any_domain: the placement has waited long enough for nodes of its domain.
    """
    if asked is None:
        return ANY_NODE
    domain = "" if any_domain else asked.domain
    return structs.replace(asked, finish_by=None, domain=domain, domain_wait_ms=None)


def avoids_spot(asked: NodeConstraints | None, decided: bool | None) -> bool:
    """Return whether a placement allows spot nodes but its pool decided that others are better for
    it.

    Where there are no others it gets spot nodes all the same: it would wait for ever otherwise.
    """
    return asked is not None and asked.spot is True and decided is False


def is_on_one_node(role: str) -> bool:
    """Return whether work of a role has all its slots on one node: trainings need not."""
    return role != "train"


def tolerating(asked: NodeConstraints, taints: tuple[str, ...]) -> NodeConstraints:
    """Return the same demands with tolerations of these taints."""
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
        submitted_at=request.submitted_at,
    )


@dataclass(frozen=True, slots=True)
class PlanNode:
    """A node that may get leases."""

    node_id: str  # its name; ties go to the first
    slots: int  # how many it has
    device: Device  # what each slot is
    memory_bytes: int  # memory of one device (cuda) or of the node, which its leases share (cpu)
    domain: str = ""  # nodes of one domain are connected faster than others
    accelerator: str = ""  # model of its devices; empty: not known
    # reserved: it is paid for in any case; spot: it may be taken away
    price_class: PriceClass = "on_demand"
    # it may soon be taken away, and gets something only where no other node fits
    warned: bool = False
    taints: tuple[str, ...] = ()  # only requests that tolerate all of them get it
    fabric: bool = True  # a request may have several such nodes
    kind: Kind = field(init=False, repr=False, compare=False)  # what requests choose nodes by

    def __post_init__(self) -> None:
        price = PRICE_CLASSES.index(self.price_class)
        memory_gib = whole_gib(self.memory_bytes)
        kind = Kind(
            self.device,
            memory_gib,
            self.accelerator,
            price,
            self.warned,
            self.taints,
            self.fabric,
        )
        object.__setattr__(self, "kind", kind)
