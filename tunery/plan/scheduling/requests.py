"""What waits, what runs, and where."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from schemas.training import Device
from schemas.units import Ms

# Slots on nodes: a request that starts holds these, and nothing else.
Seats: TypeAlias = tuple[tuple[str, int], ...]
Kind: TypeAlias = tuple[Device, int]  # a device, and its memory
LANES: tuple[Literal["premium"], Literal["standard"], Literal["free"]] = (
    "premium",
    "standard",
    "free",
)


@dataclass(frozen=True, slots=True)
class RequestClass:
    """What decides where a request fits. Requests of one class are alike to every node.

    slots: how many it needs at the same time.
    device: kind of device that every slot must be.
    memory_bytes: what one slot needs.
    excluded: nodes that failed under its job: it gets others while there are any.
    barred: nodes that it may not have in any case.
    """

    slots: int
    device: Device
    memory_bytes: int
    excluded: tuple[str, ...] = ()
    barred: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A placement that waits.

    job_id, tenant: whose it is.
    lane: index in `LANES`.
    needs: what decides where it fits.
    submitted_at: when its job was submitted; a retry keeps its place by it.
    p50_ms, p90_ms: elapsed time that it should need, and should not pass.
    preemptions: how many attempts of the job were stopped for others.
    """

    job_id: str
    tenant: str
    lane: int
    needs: RequestClass
    submitted_at: Ms
    p50_ms: Ms
    p90_ms: Ms
    preemptions: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A lease that holds slots.

    key: names it; a job may have an old lease that has not freed its slots yet.
    tenant, lane, p50_ms, p90_ms, preemptions: as in its `Request`.
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

    @property
    def slots(self) -> int:
        """All that it holds."""
        return sum(slots for _, slots in self.seats)

    def slots_on(self, node_id: str) -> int:
        """What it holds of one node."""
        return sum(slots for name, slots in self.seats if name == node_id)


def granted(request: Request, seats: Seats, at: Ms, key: str) -> Running:
    """The lease of a request that gets these seats now."""
    return Running(
        key=key,
        tenant=request.tenant,
        lane=request.lane,
        memory_bytes=request.needs.memory_bytes,
        p50_ms=request.p50_ms,
        p90_ms=request.p90_ms,
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
    """

    node_id: str
    slots: int
    device: Device
    memory_bytes: int
    domain: str = ""

    @property
    def kind(self) -> Kind:
        """What requests choose nodes by."""
        return self.device, self.memory_bytes
