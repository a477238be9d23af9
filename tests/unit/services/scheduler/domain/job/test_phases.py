"""`wanted` × `phase`, every cell: what cancel, pause and resume answer, and what they lead to."""

from itertools import product
from typing import Any, get_args

import pytest

from schemas import errors
from schemas.envelope import Rejected
from schemas.job import (
    CancelJob,
    JobEnded,
    PauseJob,
    Phase,
    PlacementUnwanted,
    PlacementWanted,
    ResumeJob,
    Wanted,
    WantedSet,
)
from services.scheduler.domain.job.phases import TOO_LATE, WANTS, Change, answer
from tests.unit.services.scheduler.fold import Decider, names, of
from tests.unit.services.scheduler.lives import JOB_ID, LIVES, job_of, lived

COMMANDS: dict[Change, Any] = {
    "cancel": CancelJob(job_id=JOB_ID),
    "pause": PauseJob(job_id=JOB_ID),
    "resume": ResumeJob(job_id=JOB_ID),
}
CHANGES: tuple[Change, ...] = get_args(Change)


def changed(phase: Phase, wanted: Wanted) -> Decider | None:
    """A job in this phase and wanted state; None where the state cannot exist."""
    decider = lived(phase)
    if wanted == "run":
        return decider
    events = decider.when(COMMANDS["pause" if wanted == "paused" else "cancel"])
    job = job_of(decider)
    reached = not isinstance(events[0], Rejected) and job is not None and job.wanted == wanted
    return decider if reached else None


def test_every_phase_has_a_life_that_leads_there() -> None:
    assert set(LIVES) == set(get_args(Phase))
    for phase in get_args(Phase):
        job = job_of(lived(phase))
        assert (job.phase if job else "done") == phase


@pytest.mark.parametrize(("change", "wanted"), tuple(product(CHANGES, get_args(Wanted))))
def test_nothing_can_be_changed_once_it_is_too_late(change: Change, wanted: Wanted) -> None:
    assert {answer(change, wanted, phase) for phase in TOO_LATE} == {"refuse"}


@pytest.mark.parametrize(
    ("change", "wanted", "phase"), tuple(product(CHANGES, get_args(Wanted), get_args(Phase)))
)
def test_the_decider_answers_as_the_table_says(
    change: Change, wanted: Wanted, phase: Phase
) -> None:
    decider = changed(phase, wanted)
    if decider is None:
        # Too late to become paused or cancelled, or cancelled at once: nothing was open.
        assert phase in TOO_LATE or wanted == "cancelled"
        return
    before = decider.state
    events = decider.when(COMMANDS[change])
    match answer(change, wanted, phase):
        case "accept":
            assert of(events, WantedSet).wanted == WANTS[change]
        case "repeat":
            assert events == ()
        case "refuse":
            assert of(events, Rejected).code == errors.ILLEGAL_STATE
            assert decider.state == before


@pytest.mark.parametrize("phase", sorted(set(get_args(Phase)) - TOO_LATE))
def test_cancel_ends_at_once_or_asks_the_pool_to_kill(phase: Phase) -> None:
    decider = lived(phase)
    job = job_of(decider)
    assert job is not None
    events = decider.when(COMMANDS["cancel"])
    if job.open is None:
        assert of(events, JobEnded).outcome == "cancelled"
    else:
        request = of(events, PlacementUnwanted).request
        assert (request.attempt, request.mode) == (job.attempt, "kill")


@pytest.mark.parametrize("phase", sorted(set(get_args(Phase)) - TOO_LATE))
def test_pause_drains_what_is_open_and_cancel_hardens_it(phase: Phase) -> None:
    decider = lived(phase)
    job = job_of(decider)
    assert job is not None
    events = decider.when(COMMANDS["pause"])
    if job.open is None:
        assert names(events) == ["WantedSet", "PhaseSet"]
        assert of(decider.when(COMMANDS["cancel"]), JobEnded).outcome == "cancelled"
    else:
        assert of(events, PlacementUnwanted).request.mode == "drain"
        assert of(decider.when(COMMANDS["cancel"]), PlacementUnwanted).request.mode == "kill"


@pytest.mark.parametrize("phase", sorted(set(get_args(Phase)) - TOO_LATE))
def test_pause_and_resume_never_lead_to_two_open_placements(phase: Phase) -> None:
    decider = lived(phase)
    job = job_of(decider)
    assert job is not None
    decider.accept(COMMANDS["pause"])
    events = decider.when(COMMANDS["resume"])
    assert of(events, WantedSet).wanted == "run"
    if job.open is not None or phase == "validating":
        assert PlacementWanted not in {type(event) for event in events}
