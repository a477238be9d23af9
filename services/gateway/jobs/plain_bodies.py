"""The plain routes' bodies as OpenAI's: other names for the same things."""

import re
from collections.abc import Mapping
from typing import Any, Final

from services.gateway.files.names import named_version
from services.gateway.jobs.bodies import FineTuningRequest, JobRequest, SimpleJobRequest
from services.gateway.web.errors import UNSUPPORTED, ApiError, invalid

FILES: Final = "tunery://files/"
FILE: Final = "file-"
# fields of OpenAI's body → of these
OF_SIMPLE: Final = {
    "model": "base_model",
    "training_file": "dataset_uri",
    "hyperparameters": "params",
}
OF_FINE_TUNING: Final = {"model": "base_model", "eval": "eval_config"}
SHORT: Final[Mapping[str, str]] = {"lr": "learning_rate", "epochs": "n_epochs"}
# All that there is trains a LoRA adapter under supervision, so these two say the same.
METHODS: Final = ("lora", "sft")


def of_simple(body: SimpleJobRequest) -> JobRequest:
    """Raises ApiError 400."""
    file_id = body.dataset_uri.removeprefix(FILES)
    if not file_id.startswith(FILE) and named_version(file_id) is None:
        text = (
            f"Only files that were uploaded here can be trained on: {FILE}…, or a version of a "
            f"named dataset such as faq@2, with or without {FILES} before it. Upload the data "
            "with POST /v1/files or POST /v1/uploads."
        )
        raise invalid(text, "dataset_uri", UNSUPPORTED)
    return JobRequest(
        model=body.base_model,
        training_file=file_id,
        hyperparameters=_long(body.params),
        **body.extras(),
    )


def of_fine_tuning(body: FineTuningRequest) -> JobRequest:
    """Raises ApiError 400."""
    if body.method not in METHODS:
        text = f"{body.method!r} is not supported here; supported: {', '.join(METHODS)}"
        raise invalid(text, "method", UNSUPPORTED)
    return JobRequest(
        model=body.base_model,
        training_file=body.training_file,
        validation_file=body.validation_file,
        hyperparameters=_long(body.hyperparameters),
        eval=body.eval_config,
        **body.extras(),
    )


def in_words_of(error: ApiError, names: Mapping[str, str]) -> ApiError:
    """The same error, with fields named as the plain body names them."""
    groups = "|".join(re.escape(name) for name in names)

    def plain(match: re.Match[str]) -> str:
        return names[match[0]]

    message = re.sub(rf"\b({groups})(?=\.|: )", plain, error.message)
    param = None if error.param is None else re.sub(rf"^({groups})(?=\.|$)", plain, error.param)
    return ApiError(error.status, error.code, message, param, error.headers)


def _long(values: Mapping[str, Any]) -> dict[str, Any]:
    return {SHORT.get(name, name): value for name, value in values.items()}
