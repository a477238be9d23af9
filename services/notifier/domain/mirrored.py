"""A job for MLflow as the journal of `job` has it, and when a failed try is tried again. Pure."""

from collections.abc import Mapping
from typing import Any, Final

from schemas.integrations import MirrorCause
from schemas.job import JobEnded, JobSubmitted
from schemas.telemetry import Step
from schemas.units import PPM, Ms
from tunery.mirrors.figures import FIGURES
from tunery.plan.hyperparameters import request_of

#: field of a step in the API, by which mirrors name its figures → field of its telemetry
TELEMETRY: Final[Mapping[str, str]] = {
    "train_loss": "loss",
    "train_mean_token_accuracy": "accuracy",
    "train_reward_accuracy": "reward_accuracy",
    "train_reward_margin": "reward_margin",
    "train_reward_mean": "reward",
    "train_reward_std": "reward_std",
    "valid_mean_token_accuracy": "valid_accuracy",
    "tokens_per_second": "tokens_per_s",
    "peak_memory_bytes": "memory_bytes",
}
FIRST_DELAY_MS: Final[Ms] = 5_000
DELAY_MS_MAX: Final[Ms] = 600_000
DOUBLINGS_MAX: Final = 10
TRIES_MAX: Final = 440  # three days of failures


class MirrorFailed(Exception):
    """The server was not written to. `cause`, `http_status`: as in `MirrorReport`."""

    def __init__(self, cause: MirrorCause, http_status: int | None = None) -> None:
        super().__init__(cause if http_status is None else f"{cause} {http_status}")
        self.cause: MirrorCause = cause
        self.http_status = http_status


def delay_ms(try_number: int) -> Ms:
    """The pause after the `try_number`-th failed try, from 1."""
    return min(FIRST_DELAY_MS << min(try_number - 1, DOUBLINGS_MAX), DELAY_MS_MAX)


def step_document(step: Step, at: Ms) -> dict[str, Any]:
    """A step by the fields that it has in the API. at: when it was taken."""
    figures = {name: getattr(step, TELEMETRY.get(name, name), None) for name in FIGURES}
    return {"step": step.step, "created_at": at // 1_000, **figures}


def job_document(
    job: JobSubmitted,
    created_at: Ms,
    suffix: str | None,
    ended: JobEnded | None,
    ended_at: Ms | None,
) -> dict[str, Any]:
    """A job by the fields that mirrors show. What it costs and what the gate says is not among
    them: `tunery job mirror` adds that.
    """
    spec = job.spec
    mixture = [{"file": f.file_id, "weight": f.weight_ppm / PPM} for f in spec.mixture]
    error = None if ended is None or ended.failure is None else {"code": ended.failure.code}
    return {
        "id": job.job_id,
        "created_at": created_at // 1_000,
        "finished_at": None if ended_at is None else ended_at // 1_000,
        "status": "running" if ended is None else ended.outcome,
        "model": spec.base.base_id if spec.start is None else spec.start.model_id,
        "fine_tuned_model": None if ended is None else ended.model_id,
        "user_provided_suffix": suffix,
        "training_file": spec.training_file,
        "validation_file": spec.validation_file,
        "mixture": mixture,
        "metadata": None,
        "seed": spec.hyper.seed,
        "trained_tokens": None if ended is None else ended.trained_tokens,
        "error": error,
        "hyperparameters": request_of(spec.hyper),
        "method": {"type": spec.hyper.method},
        "provenance": {
            "base_model": f"{spec.base.base_id}@sha256:{spec.base.sha256}",
            "started_from": None if spec.start is None else spec.start.model_id,
            "dataset_version": None,
            "configuration": spec.configuration or None,
        },
        "cost": {
            "billable_gpu_ms": None if ended is None else ended.billable_gpu_ms,
            "amount_micro": None,
            "currency": None,
        },
        "gate": None,
    }
