"""Which jobs want a verdict."""

import pytest

from schemas.job import JobEnded, PhaseSet, VerdictDue, VerdictRecorded
from schemas.training import BlobFile
from services.eval.project import VERDICT, project
from tests.unit.services.gateway.jobs.job_events import SUMMARY
from tests.unit.services.headers import header
from tunery.runtime.verbs import Done, Todo

HEADER = header("job")
DUE = VerdictDue(
    job_id="ftjob-1", scores=BlobFile(name="scores.json", blob="b", sha256="ab" * 32, bytes=1)
)
ENDED = JobEnded(
    job_id="ftjob-1",
    outcome="cancelled",
    model_id=None,
    failure=None,
    trained_tokens=0,
    billable_gpu_ms=0,
    lost_gpu_ms=0,
    released_gpu_ms=0,
    created_at=0,
)


def test_scores_that_wait_for_a_verdict_are_to_do() -> None:
    assert project(HEADER, DUE) == (Todo(VERDICT, "ftjob-1", "acme", "acme", DUE),)


@pytest.mark.parametrize("event", [VerdictRecorded(job_id="ftjob-1", summary=SUMMARY), ENDED])
def test_a_verdict_or_the_end_of_the_job_takes_it_off(event: VerdictRecorded | JobEnded) -> None:
    assert project(HEADER, event) == (Done(VERDICT, "ftjob-1"),)


def test_other_events_want_no_verdict() -> None:
    assert project(HEADER, PhaseSet(job_id="ftjob-1", phase="evaluating")) == ()
