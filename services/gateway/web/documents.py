"""What the API's document says of answers: OpenAI's fields by type, ours beside them.

For readers and reviews only, nothing is converted by these; a test holds real answers to them.
Objects may have more fields than are named here.
"""

from typing import Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict

T = TypeVar("T")


class Shown(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True)


class Page(Shown, Generic[T]):
    object: Literal["list"]
    data: list[T]
    first_id: str | None
    last_id: str | None
    has_more: bool


class Deleted(Shown):
    id: str
    object: str
    deleted: Literal[True]


class File(Shown):
    id: str
    object: Literal["file"]
    bytes: int
    created_at: int
    expires_at: int | None
    filename: str | None
    purpose: str
    status: Literal["uploaded", "processed", "error"]
    status_details: str | None
    sha256: str
    dataset: str | None
    validation: dict[str, Any] | None


class FileValidation(Shown):
    id: str
    object: Literal["file.validation"]
    status: Literal["pending", "done"]
    accepted: bool | None


class Dataset(Shown):
    """`latest_version`: the last number that was given; its file may have been deleted since."""

    id: str | None
    object: Literal["dataset"]
    latest_version: int
    latest_file: str
    updated_at: int


class FileVersion(Shown):
    """`id`: `name@version`, or the file's. `faulty` rows cannot be read, and so not be compared."""

    id: str
    file: str
    sha256: str
    rows: int
    faulty: int


class FileDifference(Shown):
    """Numbers of rows, at most 1,000 of each kind; counts are exact."""

    object: Literal["file.diff"]
    before: FileVersion
    after: FileVersion
    same: int
    added_count: int
    removed_count: int
    changed_count: int
    added: list[int]
    removed: list[int]
    changed: list[tuple[int, int]]


class Upload(Shown):
    id: str
    object: Literal["upload"]
    bytes: int
    created_at: int
    expires_at: int
    filename: str | None
    purpose: str
    mime_type: str
    status: Literal["pending", "completed", "cancelled", "expired"]
    file: File | None


class UploadPart(Shown):
    id: str
    object: Literal["upload.part"]
    created_at: int
    upload_id: str
    bytes: int
    sha256: str


class JobError(Shown):
    code: str
    message: str
    param: str | None


class Queue(Shown):
    """`eta`: when it is expected to begin, in epoch seconds. `code`: the reason for programs."""

    position: int | None
    reason: str | None
    code: str | None
    eta: int | None


class Progress(Shown):
    step: int
    resumed_from_step: int | None
    total_steps: int
    percent: float
    train_loss: float | None
    seconds_remaining: int | None


class Cost(Shown):
    """Amounts in millionths of the currency."""

    currency: str
    price_version: str
    billable_gpu_ms: int
    credited_gpu_ms: int
    amount_micro: int
    estimated_amount_micro: int | None
    amount_max_micro: int | None
    hold_gpu_ms: int | None
    released_gpu_ms: int | None


class Provenance(Shown):
    base_model: str
    dataset_version: str | None
    seed: int


class Job(Shown):
    id: str
    object: Literal["fine_tuning.job"]
    created_at: int
    error: JobError | None
    estimated_finish: int | None
    fine_tuned_model: str | None
    finished_at: int | None
    hyperparameters: dict[str, Any]
    integrations: list[Any]
    metadata: dict[str, str] | None
    method: dict[str, Any]
    model: str
    organization_id: str
    result_files: list[str]
    seed: int
    status: Literal[
        "validating_files", "queued", "running", "paused", "succeeded", "failed", "cancelled"
    ]
    trained_tokens: int | None
    training_file: str
    user_provided_suffix: str | None
    validation_file: str | None
    phase: str
    wanted: Literal["run", "paused", "cancelled"]
    queue: Queue | None
    progress: Progress | None
    cost: Cost
    eval: dict[str, float | None]
    gate: dict[str, Any] | None
    provenance: Provenance


class PlainJob(Shown):
    id: str
    object: Literal["job"]
    state: Literal[
        "queued",
        "provisioning",
        "running",
        "checkpointing",
        "evaluating",
        "paused",
        "succeeded",
        "failed",
        "cancelled",
    ]
    reason: str | None
    method: Literal["lora"]
    base_model: str
    training_file: str
    training_file_version: str | None
    training_dataset: str | None
    params: dict[str, Any]
    model: str | None
    estimated_start: int | None
    estimated_finish: int | None


class Estimate(Shown):
    object: Literal["fine_tuning.job.estimate"]
    model: str
    estimation_available: bool
    unavailable_reason: str | None
    hyperparameters: dict[str, Any]
    slots: int
    device: str
    price: dict[str, Any]


class JobEvent(Shown):
    id: str
    object: Literal["fine_tuning.job.event"]
    created_at: int
    level: Literal["info", "warn", "error"]
    message: str
    type: Literal["message", "metrics"]
    data: dict[str, Any]


class Metrics(Shown):
    id: str
    object: Literal["fine_tuning.job.metrics"]
    created_at: int
    attempt: int
    step: int
    total_steps: int
    train_loss: float | None
    train_mean_token_accuracy: float | None
    valid_loss: float | None
    learning_rate: float | None
    tokens: int
    elapsed_ms: int


class LogLine(Shown):
    id: str
    object: Literal["fine_tuning.job.log"]
    created_at: int
    attempt: int
    level: str
    message: str


class Checkpoint(Shown):
    id: str
    object: Literal["fine_tuning.job.checkpoint"]
    created_at: int
    fine_tuned_model_checkpoint: str
    fine_tuning_job_id: str
    step_number: int
    metrics: dict[str, Any]


class Permission(Shown):
    id: str
    object: Literal["checkpoint.permission"]
    created_at: int
    project_id: str


class Download(Shown):
    """`url` of each file works until `expires_at`, in epoch seconds."""

    id: str
    object: Literal["model.adapter", "checkpoint.adapter"]
    format: Literal["peft"]
    expires_at: int
    files: list[dict[str, Any]]


class Model(Shown):
    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    shutdown_date: str | None
    type: Literal["base", "fine-tuned"]
