"""Jobs as the plain routes show them."""

from msgspec.structs import replace

from schemas.job import PhaseSet
from schemas.reasons import waiting
from services.gateway.jobs.domain.plain_responses import PlainJobResponse, plain_job_response
from services.gateway.jobs.domain.queue_view import Outlook
from services.gateway.jobs.domain.responses import UNKNOWN, Moment
from services.gateway.views.tables.jobs import JOBS, JobRow
from tests.unit.services.gateway.control_plane import BASE
from tests.unit.services.gateway.jobs.domain.test_resolve import FILE
from tests.unit.services.gateway.jobs.domain.test_responses import unseal
from tests.unit.services.gateway.jobs.job_events import JOB, SPEC, SUBMITTED
from tests.unit.services.gateway.view_rows import folded, only

QUEUED = PhaseSet(job_id=JOB, phase="queued", reason=waiting("placement"))
ROW = only(folded("job", SUBMITTED, QUEUED), JOBS)


def shown(row: JobRow = ROW, outlook: Outlook | None = None) -> PlainJobResponse:
    return plain_job_response(row, FILE, unseal, Moment(outlook=outlook))


def test_every_input_is_named_by_its_hash() -> None:
    job = shown()
    assert job.base_model == f"{BASE.base_id}@sha256:{BASE.sha256}"
    assert job.training_file_version == f"sha256:{FILE.sha256}"
    assert (job.params.epochs, job.params.batch_size) == (2, SPEC.hyper.batch_size)


def test_a_job_outlives_its_training_file() -> None:
    job = plain_job_response(ROW, None, unseal, UNKNOWN)
    assert job.training_file == SPEC.training_file
    assert (job.training_file_version, job.training_dataset) == (None, None)


def test_the_named_version_of_the_training_file_is_shown() -> None:
    file = replace(FILE, dataset="key", dataset_name=FILE.name, version=2)
    job = plain_job_response(ROW, file, unseal, UNKNOWN)
    assert job.training_dataset == "opened@2"


def test_the_start_is_expected_until_it_is_known() -> None:
    outlook = Outlook(position=1, earliest=9_000)
    assert shown().estimated_start is None
    assert shown(outlook=outlook).estimated_start == 9
    assert shown(replace(ROW, started_at=4_000), outlook).estimated_start == 4


def test_the_reason_of_a_wait_is_a_sentence() -> None:
    job = shown()
    assert (job.state, job.reason) == ("queued", "Waiting for slots of the pool.")
