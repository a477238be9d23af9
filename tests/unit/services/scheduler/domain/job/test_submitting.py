"""A submission and its hold; `test_decide` and `test_admission` have the rest through the front."""

from schemas import errors
from schemas.envelope import Rejected
from schemas.job import HoldTaken, JobSubmitted
from simulator.control_plane.samples import limits, submit
from tests.unit.services.scheduler.fold import of
from tests.unit.services.scheduler.lives import new_tenant


def test_a_submission_takes_its_hold_at_once() -> None:
    events = new_tenant().accept(limits()).when(submit())
    assert of(events, JobSubmitted).job_id == of(events, HoldTaken).job_id


def test_a_tenant_that_is_not_known_submits_nothing() -> None:
    assert of(new_tenant().when(submit()), Rejected).code == errors.NOT_FOUND
