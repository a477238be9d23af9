"""Sessions at their cap go on if it is raised, and end if it is not. Idle ones are saved."""

from msgspec.structs import replace

from schemas import errors
from schemas.envelope import Rejected
from schemas.job import (
    HoldTaken,
    JobEnded,
    PauseJob,
    PhaseSet,
    PlacementUnwanted,
    PlacementWanted,
    RaiseSession,
    RecordCheckpoint,
    RecordSessionEnding,
    RecordUsage,
)
from schemas.session import SessionTerms, SetSessionTerms
from schemas.submission import Price
from services.scheduler.react import react_job
from simulator.control_plane.samples import MINUTE, checkpoint, limits, submit
from tests.unit.services.scheduler.fold import Decider, header_of, names, of
from tests.unit.services.scheduler.lives import (
    JOB_ID,
    closed,
    granted,
    job_of,
    new_tenant,
    pinned,
    started,
)

TERMS = SessionTerms(client="client-1", max_tokens=100, max_ms=60 * MINUTE)
RAISED = RaiseSession(job_id=JOB_ID, max_tokens=100, max_ms=90 * MINUTE)
USED = (
    RecordUsage(job_id=JOB_ID, attempt=1, hour_utc=0, gpu_ms=60 * MINUTE),
    closed(outcome="failed", cause="budget", billable=60 * MINUTE, ended_by="budget"),
)


def running(hard: int = 10**12, token_price: int = 0) -> Decider:
    price = Price(
        version="2026-11",
        currency="EUR",
        gpu_hour_micro=2_000_000,
        lane="standard",
        token_micro_per_million=token_price,
    )
    asked = submit(JOB_ID, training_file="", session=TERMS, price=price)
    return new_tenant().accept(limits(hard), asked, pinned(), granted(), started())


def test_a_session_that_has_used_its_time_waits_and_goes_on_once_it_is_raised() -> None:
    decider = running().accept(USED[0])
    waits = of(decider.when(USED[1]), PhaseSet)
    assert (waits.phase, waits.reason.code) == ("queued", "session_cap")
    raised = decider.when(RAISED)
    held = of(raised, HoldTaken)
    assert held.estimate.hold_gpu_ms == 90 * MINUTE
    assert of(raised, PlacementWanted).placement.max_gpu_ms == 30 * MINUTE
    (sent,) = react_job(header_of("job", "acme", 0), held)
    assert sent.body == SetSessionTerms(terms=replace(TERMS, max_ms=90 * MINUTE))
    assert decider.when(RAISED) == ()


def test_a_session_whose_client_has_gone_ends_at_its_cap_with_what_was_saved() -> None:
    ending = RecordSessionEnding(job_id=JOB_ID)
    assert running().when(ending) == ()  # its process ends it
    ended = of(running().accept(*USED).when(ending), JobEnded)
    assert (ended.outcome, ended.failure.code) == ("failed", errors.BUDGET_EXHAUSTED)
    paused = running().accept(PauseJob(job_id=JOB_ID), closed(outcome="preempted"))
    assert of(paused.when(ending), JobEnded).outcome == "cancelled"
    assert paused.when(ending) == ()


def test_a_checkpoint_that_is_said_once_more_is_one_checkpoint() -> None:
    decider, saved = running(), checkpoint(10)
    assert names(decider.when(RecordCheckpoint(job_id=JOB_ID, checkpoint=saved))) == [
        "CheckpointRecorded"
    ]
    later = replace(saved, captured_ms=saved.captured_ms + MINUTE)
    assert decider.when(RecordCheckpoint(job_id=JOB_ID, checkpoint=later)) == ()


def test_a_running_session_is_raised_and_its_lease_goes_on() -> None:
    decider = running()
    assert names(decider.when(RAISED)) == ["HoldTaken"]
    job = job_of(decider)
    assert job is not None
    assert job.spec.session == SessionTerms(client="client-1", max_tokens=100, max_ms=90 * MINUTE)
    decider = running(token_price=1_000)
    more = RaiseSession(job_id=JOB_ID, max_tokens=200, max_ms=60 * MINUTE)
    unwanted = of(decider.when(more), PlacementUnwanted)
    assert (unwanted.request.mode, unwanted.request.reason.code) == ("drain", "cap_raised")


def test_what_cannot_be_raised_is_refused() -> None:
    lower = RaiseSession(job_id=JOB_ID, max_tokens=99, max_ms=90 * MINUTE)
    assert of(running().when(lower), Rejected).code == errors.MALFORMED
    unknown = RaiseSession(job_id="ftjob-9", max_tokens=100, max_ms=90 * MINUTE)
    assert of(running().when(unknown), Rejected).code == errors.NOT_FOUND
    full = running(hard=80 * MINUTE)  # of which 60 are held
    assert of(full.when(RAISED), Rejected).code == errors.HARD_LIMIT
    fits = RaiseSession(job_id=JOB_ID, max_tokens=100, max_ms=80 * MINUTE)
    assert of(full.when(fits), HoldTaken).session.max_ms == 80 * MINUTE


def test_an_ordinary_job_that_has_used_its_hold_still_ends() -> None:
    decider = new_tenant().accept(limits(), submit(JOB_ID))
    assert of(decider.when(RAISED), Rejected).code == errors.NOT_FOUND
