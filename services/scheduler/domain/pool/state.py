"""What `pool` remembers: its nodes, the leases whose money or slots are open, who waits."""

from collections.abc import Iterator, Mapping
from typing import Final, Literal, TypeAlias

from immutables import Map
from msgspec import Struct

from schemas.account import Lane
from schemas.pool import PlacementQueued, Role
from schemas.training import Checkpoint, Device
from schemas.units import GpuMs, Ms

# Incarnations of a node remembered so that a late command of a dead agent is recognised.
INCARNATIONS_REMEMBERED_MAX: Final = 16
LANES: Final[Mapping[Lane, int]] = {"premium": 0, "standard": 1, "free": 2}

Standing: TypeAlias = Literal["up", "lost", "retired"]


class Node(Struct, frozen=True, kw_only=True):
    """`last_seen`: last proof of life. A lost node keeps what it holds and gets nothing new."""

    node_id: str
    incarnation: str
    slots: int
    device: Device
    memory_bytes: int
    last_seen: Ms
    standing: Standing = "up"
    former: tuple[str, ...] = ()


class Drain(Struct, frozen=True, kw_only=True):
    deadline: Ms
    reason: Literal["closed", "budget"]


class Lease(Struct, frozen=True, kw_only=True):
    """`closed`: its money has ended; it is here until its slots are freed as well.

    `alive_at`: last proof of life since the start. `captured_ms`: elapsed at the capture of the
    last accepted checkpoint. `asked`: its job asked for its end. `named`: checkpoints in the grant.
    `steps`: how many it began with still to do.
    """

    number: int
    tenant: str
    job_id: str
    attempt: int
    role: Role
    lane: Lane
    node_id: str
    incarnation: str
    slots: int
    max_gpu_ms: GpuMs
    price_version: str
    granted_at: Ms
    started_at: Ms | None = None
    alive_at: Ms = 0
    named: tuple[Checkpoint, ...] = ()
    last_manifest: str | None = None
    captured_ms: Ms = 0
    steps: int = 0
    used_gpu_ms: GpuMs = 0
    billable_gpu_ms: GpuMs = 0
    lost_gpu_ms: GpuMs = 0
    asked: bool = False
    drain: Drain | None = None
    killed_at: Ms | None = None
    closed: bool = False


class Waiting(Struct, frozen=True, kw_only=True):
    """`arrival` orders a lane; `reason` and `position` are what was explained last."""

    placement: PlacementQueued
    arrival: int
    reason: str = ""
    position: int = 0


class Pool(Struct, frozen=True, kw_only=True):
    """`attempts`: highest attempt seen of each job, so that none is placed twice.

    `leases` go by `lease_key`: keys of persistent maps are texts, as snapshots are JSON.
    """

    nodes: Map[str, Node] = Map()
    leases: Map[str, Lease] = Map()
    waiting: Map[str, Waiting] = Map()
    attempts: Map[str, int] = Map()
    next_lease: int = 1
    arrivals: int = 0


Pools: TypeAlias = Map[str, Pool]
EMPTY: Final[Pools] = Map()


def lease_key(number: int) -> str:
    return str(number)


def leases_of(pool: Pool, node_id: str) -> tuple[Lease, ...]:
    """All that hold slots of a node, oldest first."""
    found = (lease for lease in pool.leases.values() if lease.node_id == node_id)
    return tuple(sorted(found, key=lambda lease: lease.number))


def open_leases(pool: Pool) -> tuple[Lease, ...]:
    """Those whose money runs or may still run, oldest first."""
    found = (lease for lease in pool.leases.values() if not lease.closed)
    return tuple(sorted(found, key=lambda lease: lease.number))


def lease_of(pool: Pool, job_id: str, attempt: int) -> Lease | None:
    """The open lease of a placement."""
    for lease in pool.leases.values():
        if not lease.closed and lease.job_id == job_id and lease.attempt == attempt:
            return lease
    return None


def queue(pool: Pool) -> Iterator[Waiting]:
    """In the order of service: premium, standard, free; within a lane first come, first served."""
    ranked = pool.waiting.values()
    yield from sorted(ranked, key=lambda w: (LANES[w.placement.lane], w.arrival))


def free_slots(pool: Pool) -> dict[str, int]:
    """Free slots of every node that may get new leases, by node id."""
    free = {node.node_id: node.slots for node in pool.nodes.values() if node.standing == "up"}
    for lease in pool.leases.values():
        if lease.node_id in free:
            free[lease.node_id] -= lease.slots
    return free
