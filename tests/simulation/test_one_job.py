"""One job under every order of its tenant's commands and of the facts that can come.

The walk is exhaustive up to a number of attempts: states that were reached before are not walked
again. In each of them somebody owes a job that is wanted its next step, nothing is held or counted
that is not there, and what is over stays over.
"""

from collections import deque
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, get_args

import pytest

from schemas.admission import TENANT_BUDGET
from schemas.envelope import Context, Rejected
from schemas.job import (
    CancelJob,
    FileNoted,
    JobEnded,
    PauseJob,
    Phase,
    PinsWanted,
    PlacementWanted,
    RecordBase,
    RecordDataset,
    RecordDraining,
    RecordFile,
    RecordRegistered,
    RecordUsage,
    RecordVerdict,
    RegistrationWanted,
    ResumeJob,
    VerdictDue,
)
from schemas.reasons import Failure, failing
from schemas.training import AttemptOutcome, FailureCause
from schemas.units import GpuMs, hour_of
from services.scheduler.app import JOBS
from services.scheduler.domain.job.quota import month_standing, rest_gpu_ms
from services.scheduler.domain.job.state import OpenJob, TenantJobs
from simulator.control_plane.samples import (
    BASE,
    MINUTE,
    PASSED,
    PREPARED,
    T0,
    limits,
    submit,
    tokens,
)
from tests.searches import WALK_ATTEMPTS
from tests.unit.services.scheduler.lives import JOB_ID, TENANT, closed, granted, started

CONTEXT: Final = Context(at=T0, key=TENANT, tenant=TENANT, command_id="0" * 32, seq=1)
BROKEN: Final = Failure(code="server_error", reason=failing("file_unchecked"))
ENDS: Final[tuple[tuple[AttemptOutcome, FailureCause | None], ...]] = (
    *((outcome, None) for outcome in ("succeeded", "preempted", "lost", "not_started")),
    *(("failed", cause) for cause in ("oom", "platform", "bad_node", "budget", "user")),
)
FACTS: Final[dict[str, tuple[Any, ...]]] = {
    "file": (
        RecordFile(file_id="file-1", accepted=True, tokens=(tokens(),)),
        RecordFile(file_id="file-1", accepted=False, tokens=(), failure=BROKEN),
    ),
    "dataset": (
        RecordDataset(job_id=JOB_ID, prepared=PREPARED),
        RecordDataset(job_id=JOB_ID, prepared=None, failure=BROKEN),
    ),
    "base": (
        RecordBase(job_id=JOB_ID, base=BASE),
        RecordBase(job_id=JOB_ID, base=None, failure=BROKEN),
    ),
    "verdict": (
        RecordVerdict(job_id=JOB_ID, summary=PASSED),
        RecordVerdict(job_id=JOB_ID, summary=None, failure=BROKEN),
    ),
    "registry": (
        RecordRegistered(job_id=JOB_ID, model_id="ft:smol"),
        RecordRegistered(job_id=JOB_ID, model_id="ft:smol", failure=BROKEN),
    ),
}
CLIENT_COMMANDS: Final = tuple(kind(job_id=JOB_ID) for kind in (CancelJob, PauseJob, ResumeJob))


class Visit(NamedTuple):
    """A state, who owes the job a fact, and what was used so far and in the open attempt."""

    state: Any
    owed: frozenset[str]
    used: GpuMs
    metered: bool

    @property
    def tenant(self) -> TenantJobs:
        tenant: TenantJobs = self.state[TENANT]
        return tenant

    @property
    def job(self) -> OpenJob | None:
        return self.tenant.jobs.get(JOB_ID)


class Move(NamedTuple):
    """A command, which debt it pays, and what it uses."""

    command: Any
    pays: str = ""
    used: GpuMs = 0


@pytest.mark.parametrize(
    "attempts_max",
    [WALK_ATTEMPTS.quick, pytest.param(WALK_ATTEMPTS.full, marks=pytest.mark.long)],
)
def test_money_a_job_is_always_owed_its_next_step_and_nothing_is_left_when_it_ends(
    attempts_max: int,
) -> None:
    reached, phases, transitions = set[str](), set[str](), 0
    start = step(Visit(JOBS.initial, frozenset(), 0, False), Move(limits()))[0]
    known, _ = step(start, Move(submit(JOB_ID)))
    later, _ = step(start, Move(submit(JOB_ID, None)))
    waiting = deque((known, later._replace(owed=frozenset({"file"}))))
    while waiting:
        visit = waiting.popleft()
        name = repr(visit)
        if name in reached:
            continue
        reached.add(name)
        expect_sound(visit)
        phases.add("done" if visit.job is None else visit.job.phase)
        if visit.job is not None and visit.job.attempt >= attempts_max:
            continue
        for move in moves(visit):
            after, events = step(visit, move)
            transitions += 1
            if visit.job is None:
                assert all(isinstance(event, Rejected | FileNoted) for event in events), events
            assert sum(isinstance(event, JobEnded) for event in events) == (
                visit.job is not None and after.job is None
            )
            waiting.append(after)
    assert phases == set(get_args(Phase))
    assert len(reached) > 1_000
    assert transitions > 10_000


def expect_sound(visit: Visit) -> None:
    """What holds in every state, whatever led to it."""
    job, owed = visit.job, visit.owed
    standing = month_standing(visit.tenant, TENANT_BUDGET, "EUR", T0)
    assert standing.used_gpu_ms == visit.used
    if job is None:
        assert JOB_ID in visit.tenant.ended
        assert (standing.held_gpu_ms, standing.held_micro) == (0, 0)
        return
    assert job.wanted != "run" or owed, f"no service has work left for {job}"
    assert (job.open is not None) == ("pool" in owed)
    if job.hold is None:
        assert standing.held_gpu_ms == job.counted_gpu_ms == 0
    else:
        assert job.counted_gpu_ms == visit.used
        assert standing.held_gpu_ms == rest_gpu_ms(job) == job.hold.hold_gpu_ms - visit.used


def moves(visit: Visit) -> Iterator[Move]:
    """All that can come next: what clients send, what is owed, and what came before."""
    yield from map(Move, CLIENT_COMMANDS)
    job = visit.job
    for name in sorted(visit.owed - {"pool"}):
        yield from (Move(fact, name) for fact in FACTS[name])
    if job is None or job.open is None:
        if job is not None and job.attempt:
            yield Move(closed(job.attempt, "lost"))
        return
    if not job.open.node_ids:
        yield Move(granted(job.attempt))
        yield Move(closed(job.attempt, "not_started", role=job.open.role, billable=0), "pool")
        return
    yield Move(started(job.attempt))
    yield Move(RecordDraining(job_id=JOB_ID, attempt=job.attempt))
    if not visit.metered:
        minute = RecordUsage(
            job_id=JOB_ID, attempt=job.attempt, hour_utc=hour_of(T0), gpu_ms=MINUTE
        )
        yield Move(minute, used=MINUTE)
    for outcome, cause in ENDS:
        end = closed(job.attempt, outcome, cause, role=job.open.role)
        yield Move(end, "pool")


def step(visit: Visit, move: Move) -> tuple[Visit, tuple[Any, ...]]:
    state, owed = visit.state, set(visit.owed)
    events = JOBS.decide(state, move.command, CONTEXT)
    owed.discard(move.pays)
    for event in events:
        state = JOBS.evolve(state, event, CONTEXT)
        match event:
            case PinsWanted():
                owed |= {"dataset", "base"}
            case PlacementWanted():
                owed.add("pool")
            case VerdictDue():
                owed.add("verdict")
            case RegistrationWanted():
                owed.add("registry")
            case _:
                pass
    metered = (visit.metered or move.used > 0) and move.pays != "pool"
    return Visit(state, frozenset(owed), visit.used + move.used, metered), tuple(events)
