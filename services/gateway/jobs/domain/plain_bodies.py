"""Converts bodies of the plain routes to OpenAI's, and field names in errors back."""

import re
from collections.abc import Mapping
from typing import Any, Final

from services.gateway.files.domain.names import named_version
from services.gateway.jobs.domain.bodies import FineTuningRequest, JobRequest, SimpleJobRequest
from services.gateway.web.domain.errors import UNSUPPORTED, ApiError, invalid

FILES: Final = "tunery://files/"
FILE: Final = "file-"
# field of OpenAI's body → field of the plain body
OF_SIMPLE: Final = {
    "model": "base_model",
    "training_file": "dataset_uri",
    "hyperparameters": "params",
}
OF_FINE_TUNING: Final = {"model": "base_model", "eval": "eval_config"}
SHORT: Final[Mapping[str, str]] = {"lr": "learning_rate", "epochs": "n_epochs"}
# What they mean, all of them supervised: an adapter, one on a base in four bits, every weight.
METHODS: Final[Mapping[str, Mapping[str, str]]] = {
    "lora": {"adaptation": "lora"},
    "sft": {},
    "qlora": {"adaptation": "qlora"},
    "full": {"adaptation": "full"},
}


def from_simple(body: SimpleJobRequest) -> JobRequest:
    """Convert the body of `POST /v1/jobs`. Raises ApiError 400."""
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


def from_fine_tuning(body: FineTuningRequest) -> JobRequest:
    """Convert the body of `POST /v1/fine-tuning/jobs`. Raises ApiError 400."""
    if body.method not in METHODS:
        text = f"{body.method!r} is not supported here; supported: {', '.join(METHODS)}"
        raise invalid(text, "method", UNSUPPORTED)
    meant, named = METHODS[body.method], _long(body.hyperparameters)
    for name, value in meant.items():
        if named.get(name, value) != value:
            text = (
                f"method {body.method!r} means {name} {value!r}, and hyperparameters.{name} is "
                f"{named[name]!r}; leave one of them out"
            )
            raise invalid(text, f"hyperparameters.{name}")
    return JobRequest(
        model=body.base_model,
        training_file=body.training_file,
        validation_file=body.validation_file,
        hyperparameters={**meant, **named},
        eval=body.eval_config,
        **body.extras(),
    )


def with_plain_names(error: ApiError, names: Mapping[str, str]) -> ApiError:
    """The error with the field names of the plain body."""
    groups = "|".join(re.escape(name) for name in names)

    def plain(match: re.Match[str]) -> str:
        return names[match[0]]

    message = re.sub(rf"\b({groups})(?=\.|: )", plain, error.message)
    param = None if error.param is None else re.sub(rf"^({groups})(?=\.|$)", plain, error.param)
    return ApiError(error.status, error.code, message, param, error.headers)


def _long(values: Mapping[str, Any]) -> dict[str, Any]:
    return {SHORT.get(name, name): value for name, value in values.items()}
