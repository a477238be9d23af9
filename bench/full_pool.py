"""A pool without a free slot, in front of the scheduler's decider of production."""

from collections import deque
from typing import Any, Final

from msgspec.structs import replace

from schemas.envelope import Context, Message
from schemas.pool import (
    ConfirmFreed,
    ForgetWork,
    LeaseRef,
    PlacementQueued,
    ReportExit,
    ReportStarted,
    RequestPlacement,
    Token,
)
from schemas.training import AttemptStart
from schemas.units import HOUR_MS
from services.scheduler.app import POOLS
from services.scheduler.domain.pool.state import Pool, Pools
from simulator.control_plane.samples import POOL, T0, describe, node, request, result_of

SLOTS: Final = 8
GB: Final = 1_000_000_000
LANES: Final = ("premium", "standard", "free")
STARTED: Final = AttemptStart(loaded=None, loaded_step=0, skipped=(), total_steps=1_000)


class FullPool:
    """Nodes whose slots are all held by leases that have worked for an hour without a checkpoint.

    at: now.
    """

    def __init__(self, nodes: int) -> None:
        self._state: Pools = POOLS.initial
        self._records = 0
        self._order = deque[tuple[int, str, LeaseRef]]()  # leases that hold slots: number, node
        self.at = T0
        for number in range(nodes):
            name = f"n{number:04d}"
            described = node(name, name, SLOTS)
            gpus = replace(described.node, device="cuda", memory_bytes=80 * GB)
            self.send(replace(described, node=gpus))
        for number in range(nodes * SLOTS):
            job_id = f"ftjob-first-{number:06d}"
            self.send(describe(job_id))
            self.send(self._request(job_id, number, 1))
        self.at += HOUR_MS

    def send(self, command: Message) -> None:
        """Decide a command and fold what follows. What was granted starts at once."""
        self.fold(self.decide(command))

    def decide(self, command: Message) -> tuple[Any, ...]:
        """Return the scheduler's events. Raises ValueError if it refuses the command."""
        events = POOLS.decide(self._state, command, self._context())
        if events and type(events[0]).__name__ == "Rejected":
            raise ValueError(f"{command} is refused: {events[0]}")
        return events

    def fold(self, events: tuple[Any, ...]) -> None:
        """The record has been written."""
        context = self._context()
        self._records += 1
        for event in events:
            self._state = POOLS.evolve(self._state, event, context)
        for event in events:
            if type(event).__name__ == "LeaseGranted":
                lease, (member,) = event.lease.token.lease, event.members
                self._order.append((lease, member.node_id, event.lease))
                token = Token(pool=POOL, lease=lease)
                self.send(ReportStarted(token=token, incarnation=member.node_id, start=STARTED))

    @property
    def pool(self) -> Pool:
        """The pool as it is now."""
        return self._state[POOL]

    def wait(self, number: int) -> None:
        """A request waits, as if it had been decided long ago."""
        self.describe(number)
        self.fold((PlacementQueued(placement=self.request(number).placement),))

    def describe(self, number: int) -> None:
        """The pool has the work of a job."""
        self.send(describe(_job(number)))

    def request(self, number: int, slots: int = 0) -> RequestPlacement:
        """Request slots for one of a hundred tenants in three lanes. slots: 0: mostly single
        ones.
        """
        mixed = (1, 1, 1, 1, 1, 1, 2, 4, 8, 16)[number % 10]
        return self._request(_job(number), number, slots or mixed)

    def next_end(self) -> tuple[Message, ...]:
        """Return the reports that end the oldest lease: exit, forgotten job, freed slots.

        A forgotten job keeps no slots for an evaluation. Every other lease succeeds.
        """
        lease, node_id, ref = self._order.popleft()
        token = Token(pool=POOL, lease=lease)
        end = ReportExit(
            token=token, incarnation=node_id, outcome="failed", elapsed_ms=1, cause="user"
        )
        if lease % 2:
            end = replace(
                end, outcome="succeeded", cause=None, result=result_of("train", ref.tenant)
            )
        return (
            end,
            ForgetWork(job_id=ref.job_id),
            ConfirmFreed(token=token, node_id=node_id, incarnation=node_id),
        )

    def _request(self, job_id: str, number: int, slots: int) -> RequestPlacement:
        hours_ms = (1 + number % 20) * HOUR_MS
        return request(
            job_id,
            tenant=f"t{number % 97:02d}",
            lane=LANES[number % len(LANES)],
            slots=slots,
            device="cuda",
            memory_bytes=GB,
            first_submitted_at=self.at,
            p50_ms=hours_ms,
            p90_ms=2 * hours_ms,
            max_gpu_ms=2 * hours_ms * slots,
        )

    def _context(self) -> Context:
        return Context(
            at=self.at, key=POOL, tenant="acme", command_id="0" * 32, seq=self._records + 1
        )


def _job(number: int) -> str:
    return f"ftjob-{number:06d}"
