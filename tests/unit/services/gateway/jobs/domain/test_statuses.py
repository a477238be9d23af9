"""Phases as statuses and states."""

from typing import get_args

import pytest

from schemas.job import JobOutcome, Phase, Wanted
from services.gateway.jobs.domain.statuses import JobState, JobStatus, job_state, job_status


@pytest.mark.parametrize("outcome", get_args(JobOutcome))
@pytest.mark.parametrize("wanted", get_args(Wanted))
def test_the_outcome_of_a_job_that_is_over_counts_whatever_was_wanted(
    wanted: Wanted, outcome: JobOutcome
) -> None:
    assert job_status(wanted, "done", outcome) == outcome
    assert job_state(wanted, "done", outcome) == outcome


@pytest.mark.parametrize("wanted", get_args(Wanted))
def test_a_job_that_is_over_without_an_outcome_is_a_damaged_row(wanted: Wanted) -> None:
    for read in (job_status, job_state):
        with pytest.raises(ValueError, match="has no outcome"):
            read(wanted, "done", None)


@pytest.mark.parametrize("phase", [phase for phase in get_args(Phase) if phase != "done"])
def test_a_cancelled_job_is_shown_as_cancelled_in_every_phase(phase: Phase) -> None:
    assert job_status("cancelled", phase, None) == "cancelled"
    assert job_state("cancelled", phase, None) == "cancelled"


def test_first_hour2_u15_a_job_whose_lease_starts_is_not_queued() -> None:
    assert job_status("run", "provisioning", None) == "running"
    assert job_state("run", "provisioning", None) == "provisioning"
    assert job_status("run", "queued", None) == "queued"


@pytest.mark.parametrize("phase", get_args(Phase))
@pytest.mark.parametrize("wanted", get_args(Wanted))
def test_every_phase_has_a_status_and_a_state(wanted: Wanted, phase: Phase) -> None:
    outcome: JobOutcome | None = "succeeded" if phase == "done" else None
    assert job_status(wanted, phase, outcome) in get_args(JobStatus)
    assert job_state(wanted, phase, outcome) in get_args(JobState)


@pytest.mark.parametrize(
    ("phase", "status", "state"),
    [
        ("provisioning", "paused", "paused"),
        ("evaluating", "paused", "paused"),
        ("running", "running", "running"),
        ("checkpointing", "running", "checkpointing"),
        ("registering", "running", "evaluating"),
    ],
)
def test_a_pausing_job_is_paused_once_it_uses_no_machine(
    phase: Phase, status: JobStatus, state: JobState
) -> None:
    assert job_status("paused", phase, None) == status
    assert job_state("paused", phase, None) == state
