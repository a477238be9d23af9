"""Responses of the plain routes: jobs with finer states, and with a hash of each input."""

from typing import Literal

from services.gateway.files.domain.names import label
from services.gateway.jobs.domain.gate_responses import GateResponse
from services.gateway.jobs.domain.parameters import TrainingParametersResponse, training_parameters
from services.gateway.jobs.domain.progress import ProgressResponse
from services.gateway.jobs.domain.responses import (
    CostSummaryResponse,
    JobErrorResponse,
    JobResponse,
    Moment,
    ProvenanceResponse,
    QueueResponse,
    job_response,
)
from services.gateway.jobs.domain.statuses import JobState, job_state
from services.gateway.jobs.domain.texts import with_texts
from services.gateway.views.tables.files import FileRow
from services.gateway.views.tables.jobs import JobRow
from services.gateway.web.domain.responses import ListItem, Unseal, seconds_or_none
from services.gateway.wording import wait_words


class PlainParametersResponse(TrainingParametersResponse):
    epochs: int
    batch_size: int


@with_texts
class PlainJobResponse(ListItem):
    """A job in the plain form of `/v1/jobs`. `training_file_version`: `sha256:` and the hash of its
    bytes, while the file is kept.
    """

    object: Literal["job"] = "job"
    id: str
    created_at: int
    finished_at: int | None
    seed: int
    metadata: dict[str, str] | None
    error: JobErrorResponse | None
    training_file: str
    validation_file: str | None
    queue: QueueResponse | None
    progress: ProgressResponse | None
    cost: CostSummaryResponse
    gate: GateResponse | None
    provenance: ProvenanceResponse
    state: JobState
    reason: str | None
    method: Literal["lora"] = "lora"
    base_model: str
    training_file_version: str | None
    training_dataset: str | None
    params: PlainParametersResponse
    suffix: str | None
    model: str | None
    estimated_start: int | None
    estimated_finish: int | None


def plain_job_response(
    row: JobRow,
    training: FileRow | None,
    unseal: Unseal,
    moment: Moment,
) -> PlainJobResponse:
    """A job. `training`: row of the training file; None when it was deleted."""
    job = job_response(row, unseal, moment)
    expected_start = None if job.queue is None else job.queue.eta
    base, hyper = row.spec.base, row.settled.hyper
    params = PlainParametersResponse(
        epochs=hyper.n_epochs, batch_size=hyper.batch_size, **training_parameters(hyper)
    )
    common = {*PlainJobResponse.model_fields} & {*JobResponse.model_fields} - {
        "object",
        "method",
        "model",
    }
    return PlainJobResponse(
        **{name: getattr(job, name) for name in common},
        state=job_state(row.wanted, row.phase, row.outcome),
        reason=wait_words(row.reason) if job.queue is None else job.queue.reason,
        base_model=f"{base.base_id}@sha256:{base.sha256}",
        training_file_version=None if training is None else f"sha256:{training.sha256}",
        training_dataset=None if training is None else label(training, unseal),
        params=params,
        suffix=job.user_provided_suffix,
        model=row.model_id,
        estimated_start=seconds_or_none(row.started_at) or expected_start,
    )
