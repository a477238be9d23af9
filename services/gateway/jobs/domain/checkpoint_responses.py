"""Checkpoints of a job, and the files of one."""

from collections.abc import Mapping
from typing import Literal

from services.gateway.models.domain.names import checkpoint_name
from services.gateway.models.domain.responses import (
    DownloadFileResponse,
    Format,
    download_files,
    format_of,
)
from services.gateway.views.tables.jobs import CheckpointRow, StepRow
from services.gateway.web.domain.responses import ListItem, Response, Seconds


class CheckpointResponse(ListItem):
    """A checkpoint. `metrics`: figures of its step; empty when they are not kept any more."""

    id: str
    object: Literal["fine_tuning.job.checkpoint"] = "fine_tuning.job.checkpoint"
    created_at: Seconds
    fine_tuned_model_checkpoint: str
    fine_tuning_job_id: str
    step_number: int
    metrics: dict[str, int | float | None]
    attempt: int
    manifest_sha256: str
    bytes: int
    trained_tokens: int


class CheckpointFilesResponse(Response):
    """`url` of each file works until `expires_at`, in epoch seconds."""

    id: str
    object: Literal["checkpoint.adapter"] = "checkpoint.adapter"
    format: Format = "peft"
    step_number: int
    expires_at: int
    files: list[DownloadFileResponse]


def checkpoint_response(
    row: CheckpointRow, model_id: str, step: StepRow | None
) -> CheckpointResponse:
    """A checkpoint. `step`: telemetry of its step; None when that is not kept any more."""
    metrics: dict[str, int | float | None] = {"step": row.step}
    if step is not None:
        metrics["train_loss"] = step.loss
        metrics["train_mean_token_accuracy"] = step.accuracy
        if (valid := step.valid_loss) is not None:
            metrics["valid_loss"] = valid
            metrics["valid_mean_token_accuracy"] = step.valid_accuracy
    return CheckpointResponse.of(
        row,
        fine_tuned_model_checkpoint=checkpoint_name(model_id, row.step),
        fine_tuning_job_id=row.job_id,
        step_number=row.step,
        metrics=metrics,
    )


def checkpoint_files_response(
    row: CheckpointRow, urls: Mapping[str, str], expires_at: int
) -> CheckpointFilesResponse:
    """Download URLs of a checkpoint's adapter. `expires_at`: in epoch seconds."""
    return CheckpointFilesResponse(
        id=row.id,
        format=format_of(row.files),
        step_number=row.step,
        expires_at=expires_at,
        files=download_files(row.files, urls),
    )
