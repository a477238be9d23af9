"""Imports as responses."""

from typing import Literal

from schemas.imports import ImportOutcome, ImportSource
from services.gateway.views.tables.imports import ImportRow
from services.gateway.web.domain.responses import ListItem, Response, Seconds, Unseal


class ImportResponse(ListItem):
    """An import. `progress`: how far it has come. `plan_file_id`: file with what was found, and a
    request for a job for each model that can be trained here. `teacher_file_id`: file with what
    old models answered. `error`: why it failed.
    """

    id: str
    object: Literal["import"] = "import"
    source: ImportSource
    base_url: str | None
    status: Literal["in_progress"] | ImportOutcome
    created_at: Seconds
    ended_at: Seconds | None
    progress: str | None
    plan_file_id: str | None
    teacher_file_id: str | None
    error: str | None


def import_response(row: ImportRow, unseal: Unseal) -> ImportResponse:
    result = row.result
    return ImportResponse.of(
        row,
        base_url=unseal(row.url, "url"),
        status="in_progress" if result is None else result.outcome,
        progress=unseal(row.progress, "detail"),
        plan_file_id=None if result is None else result.plan_file_id,
        teacher_file_id=None if result is None else result.teacher_file_id,
        error=None if result is None else unseal(result.detail, "detail"),
    )


class ImportedJobResponse(Response):
    """A planned job. `source_job`, `source_model`: there. `job_id`: the job here, once it is
    submitted. `error`: why it has no price, or was not submitted.
    """

    source_job: str
    source_model: str
    base: str | None
    job_id: str | None = None
    amount_micro: int | None = None
    amount_max_micro: int | None = None
    expected_duration_seconds: int | None = None
    max_duration_seconds: int | None = None
    error: str | None = None


class ImportedJobsResponse(Response):
    """Jobs of a plan, and what all that have a price cost together, in millionths."""

    object: Literal["import.jobs"] = "import.jobs"
    import_id: str
    currency: str | None
    amount_micro: int
    amount_max_micro: int
    data: list[ImportedJobResponse]
