"""Names of fine-tuned models, as OpenAI builds them: `ft:{base}:{organisation}:{suffix}:{id}`.

The log and the read models have the suffix sealed: `web.shown_names` opens it in answers.
"""

import re
from typing import Final, get_args

from schemas import errors
from schemas.ids import MODEL as MODEL_PREFIX
from schemas.model import HeldStage
from services.gateway.web.domain.errors import ApiError

HELD_STAGES: Final[tuple[HeldStage, ...]] = get_args(HeldStage)
MODEL_SUFFIX_CHARACTERS: Final = 8


def model_id(base_name: str, tenant: str, sealed_suffix: str, job_id: str) -> str:
    """The name of the job's model on the log; the suffix part is empty for a job without one.

    base_name: name of the base model in the request, its id or an alias: clients of OpenAI
    look it up in tables of their own.
    """
    end = job_id[-MODEL_SUFFIX_CHARACTERS:]
    return f"{MODEL_PREFIX}{base_name}:{tenant}:{sealed_suffix}:{end}"


def named_stage(name: str) -> HeldStage | None:
    """The stage that a name such as `ft:base:tenant:suffix:production` asks for; None: none."""
    end = name.rpartition(":")[2] if name.startswith(MODEL_PREFIX) else ""
    return next((stage for stage in HELD_STAGES if stage == end), None)


def stage_name(model: str, stage: HeldStage) -> str:
    """The name under which a version answers while it holds a stage."""
    return f"{model.rpartition(':')[0]}:{stage}"


def checkpoint_name(model: str, step: int) -> str:
    """The name under which OpenAI's API has a checkpoint of the model's job."""
    return f"{model}:ckpt-step-{step}"


def is_of_line(name: str, model: str) -> bool:
    """Return whether two names differ only in their last part."""
    return name.rpartition(":")[0] == model.rpartition(":")[0]


def slug(suffix: str) -> str:
    """The suffix with only characters that identifiers and URLs may have."""
    return re.sub(r"[^a-z0-9._-]+", "-", suffix.lower()).strip("-")


def unknown_model(name: str) -> ApiError:
    """The refusal of a job whose model does not exist."""
    if name.startswith(MODEL_PREFIX):
        message = (
            f"The model '{name}' does not exist. A training begins with a base model, or with a "
            "version or a checkpoint of your own: GET /v1/models lists them."
        )
        return ApiError(404, errors.UNKNOWN_BASE, message, "model")
    message = (
        f"The model '{name}' does not exist. GET /v1/models lists the base models; the operator "
        "can make this another name of one (`tunery base alias`)."
    )
    return ApiError(404, errors.UNKNOWN_BASE, message, "model")
