"""Jobs as the plain routes show them: our own states, every input pinned."""

from typing import Any

import msgspec

from schemas.job import JobSpec
from schemas.units import Ms
from services.gateway.files.names import label
from services.gateway.jobs.queue_forecast import Outlook
from services.gateway.jobs.responses import job_object, own_hyperparameters
from services.gateway.jobs.statuses import job_state
from services.gateway.web.responses import Opened, Row, seconds
from services.gateway.web.wording import wait_words

SAME = (
    *("id", "created_at", "finished_at", "seed", "metadata", "error", "training_file"),
    *("validation_file", "queue", "progress", "cost", "gate", "provenance"),
)


def plain_job(
    row: Row, training: Row | None, opened: Opened, step: Row | None, outlook: Outlook | None
) -> dict[str, Any]:
    """`training`: the training file's row, while it is kept."""
    spec = msgspec.convert(row["spec"], JobSpec)
    shown = job_object(row, opened, step, outlook)
    began = row["started_at"]
    return {
        "object": "job",
        **{name: shown[name] for name in SAME},
        "state": job_state(row["wanted"], row["phase"], row["outcome"]),
        "reason": wait_words(row["reason"]),
        "method": "lora",
        "base_model": f"{spec.base.base_id}@sha256:{spec.base.sha256}",
        "training_file_version": None if training is None else f"sha256:{training['sha256']}",
        "training_dataset": None if training is None else label(training, opened),
        "params": {
            "epochs": spec.hyper.n_epochs,
            "batch_size": spec.hyper.batch_size,
            **own_hyperparameters(spec.hyper),
        },
        "suffix": shown["user_provided_suffix"],
        "model": row["model_id"],
        "estimated_start": seconds(_expected_start(outlook) if began is None else began),
        "estimated_finish": shown["estimated_finish"],
    }


def _expected_start(outlook: Outlook | None) -> Ms | None:
    return None if outlook is None else outlook.starts_at
