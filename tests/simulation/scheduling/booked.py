"""Independent books of a pool: nodes, leases, waiting requests, and their order."""

from dataclasses import dataclass
from typing import Final

from schemas.node import Seat
from schemas.pool import Placement, Token
from schemas.training import ExpectedTime, NodeConstraints
from simulator.control_plane.samples import POOL
from tunery.plan.scheduling.requests import Request

LANES: Final = ("premium", "standard", "free")
MINUTE: Final = 60_000
HOUR: Final = 60 * MINUTE
RESTART_MS: Final = 3 * MINUTE
SAVED_EVERY_MS: Final = 10 * MINUTE  # by the work of all jobs here
LATE_MS: Final = {"standard": 20 * HOUR, "free": 20 * HOUR}  # for whole nodes
SOON_MS: Final = 10_000
STEPS_MIN: Final = 20  # of a lease, before they say how long the others take


@dataclass
class BookedNode:
    """A node: what it has, and whether it may get anything."""

    slots: int
    device: str
    memory_bytes: int
    incarnation: str
    gone: bool = False  # lost or retired
    is_lost: bool = False
    cordoned: bool = False
    joining: bool = False
    leaving: bool = False
    noticed: bool = False  # its machine is taken away
    accelerator: str = ""
    spot: bool = False
    taints: tuple[str, ...] = ()
    domain: str = ""

    @property
    def may_get(self) -> bool:
        return not (self.gone or self.cordoned or self.joining or self.leaving)

    def suits(self, placement: Placement) -> bool:
        """Whether its slots can be what a placement asks for."""
        asked = placement.constraints or NodeConstraints()
        is_alike = self.device == placement.device and asked.accelerator in ("", self.accelerator)
        is_tolerated = {*self.taints} <= {*asked.tolerations}
        return is_alike and is_tolerated and self.memory_bytes >= placement.memory_bytes


@dataclass
class BookedLease:
    """A lease: its placement, what it holds, and what it used."""

    number: int
    placement: Placement
    members: dict[str, tuple[int, ...]]  # node → devices that it still holds
    incarnations: dict[str, str]
    expected: ExpectedTime
    granted_at: int
    since: int = 0  # when its placement was queued
    started_at: int | None = None
    steps: int = 0
    step: int = 0
    captured_ms: int = 0
    ends_by: int | None = None
    beneficiary: str = ""
    used: int = 0
    billable: int = 0
    lost: int = 0
    closed: bool = False
    spot: bool | None = None
    domain: str = ""
    first: tuple[str, int] = ("", 0)  # node and slots of its first member

    @property
    def token(self) -> Token:
        return Token(pool=POOL, lease=self.number)

    @property
    def agent(self) -> str:
        return next(iter(self.incarnations.values()))

    def is_like(self, wait: "BookedWait") -> bool:
        """Whether a request may have what it might when it waited, by what its pool decided."""
        return (self.spot, self.domain) == (wait.spot, wait.domain)

    def on(self, node_id: str) -> int:
        """Slots that it holds there."""
        return len(self.members.get(node_id, ()))

    def ends_at(self, at: int) -> int:
        """When its slots should be free; always after now.

        What is late is expected in steps, so that it is not expected anew all the time: in ten
        seconds where it was told to end, in a tenth of its time otherwise.
        """
        if self.closed or self.ends_by is not None:
            ends_by = self.granted_at if self.closed or self.ends_by is None else self.ends_by
            late_ms = at - ends_by
            return ends_by if late_ms < 0 else ends_by + late_ms - late_ms % SOON_MS + SOON_MS
        began = self.granted_at if self.started_at is None else self.started_at
        ends_at, ran_ms = began + self.lasts_ms(), at - began
        if ends_at > at:
            return ends_at
        ran_ms -= ran_ms % (4_000 << (ran_ms // (10 * MINUTE)).bit_length())
        return began + ran_ms + max(MINUTE, ran_ms // 10)

    def lasts_ms(self) -> int:
        """How long it should last at most: as the steps in its last checkpoint took, and a quarter
        more for the others.
        """
        if not self.steps or self.step < STEPS_MIN:
            return self.expected.p90_ms
        left = max(0, self.steps - self.step)
        left_ms = self.captured_ms * left // self.step + MINUTE // 2
        most_ms = self.captured_ms + left_ms + left_ms // 4 + MINUTE
        return max(1, min(most_ms, self.placement.p90_ms))


@dataclass
class BookedWait:
    """A placement that waits, and the slots that are being freed for it."""

    placement: Placement
    expected: ExpectedTime
    bound: tuple[Seat, ...] = ()
    was_let_go: bool = False  # one of several nodes it is bound to was away since
    spot: bool | None = None
    is_kept_off: bool = False  # it lost too many spot nodes lately
    since: int = 0
    any_domain: bool = False  # it has waited long enough

    @property
    def domain(self) -> str:
        """Where its nodes have to be; empty: anywhere."""
        asked = self.placement.constraints
        return "" if asked is None or self.any_domain else asked.domain

    def may_leave_domain(self, at: int) -> bool:
        """Whether it has waited for its domain as long as it would."""
        asked = self.placement.constraints
        if asked is None or asked.domain_wait_ms is None:
            return False
        return at >= self.since + asked.domain_wait_ms

    @property
    def sharing(self) -> int:
        """How many of its slots share the memory of a node: those of a CPU node all do."""
        return self.placement.slots if self.placement.device == "cpu" else 1

    def fits(self, node: BookedNode) -> bool:
        """Whether a node could hold it, if it were idle."""
        asked = self.placement
        has_memory = node.memory_bytes >= asked.memory_bytes * self.sharing
        is_near = self.domain in ("", node.domain)
        return is_near and has_memory and node.slots >= asked.slots and node.suits(asked)

    def gives_up_spot(self, at: int) -> bool:
        """Whether it could not lose a spot node now and be done in time all the same."""
        asked = self.placement.constraints
        if asked is None or asked.finish_by is None:
            return False
        return at + self.expected.p90_ms + SAVED_EVERY_MS + RESTART_MS >= asked.finish_by


@dataclass
class BookedKept:
    """Slots of a training that has succeeded, for the evaluation of its job."""

    node_id: str
    slots: int
    memory_bytes: int  # of a slot
    until: int


def due(booked: BookedWait | BookedLease) -> tuple[int, int, str]:
    """The order of what is late."""
    asked = booked.placement
    late_at = booked.since + LATE_MS.get(asked.lane, 0)
    return late_at, asked.first_submitted_at, asked.job_id


def is_behind(lease: BookedLease, late: Request) -> bool:
    """Whether a lease is of a later lane than a late request, or was submitted later."""
    asked = lease.placement
    before = LANES.index(asked.lane), asked.first_submitted_at
    return before > (late.lane, late.submitted_at)


def rank(booked: BookedWait | BookedLease) -> tuple[int, int, str]:
    """Requests of a tenant: by submission, and twice their expected time."""
    asked = booked.placement
    waits = asked.first_submitted_at + 2 * booked.expected.p50_ms
    return waits, asked.first_submitted_at, asked.job_id
