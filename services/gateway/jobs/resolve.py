"""From a request body to a job: every problem found at once, then every number resolved."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from reprlib import repr as repr_short
from typing import Any, Final, Literal, get_args

import msgspec

from schemas import errors
from schemas.dataset import BaseTokens, LengthPolicy, Validation
from schemas.job import Budget, JobSpec, Price
from schemas.model import Base
from schemas.sealed import Sealed
from schemas.training import Device, HyperParameters
from schemas.units import HOUR_MS, PPM
from services.gateway.jobs.bodies import JobRequest
from services.gateway.web.errors import UNSUPPORTED, ApiError, invalid
from tunery.plan.hyperparameters import ParameterProblem, problems, resolve

METHODS: Final = ("supervised",)
LENGTH_POLICIES: Final[tuple[LengthPolicy, ...]] = get_args(LengthPolicy)
SLOTS_MAX: Final = 64
POOL: Final = "default"
VALIDATION_FRACTION_PPM: Final = 100_000
VALIDATION_FRACTION_MAX: Final = 0.5
DROP_MAX: Final = 0.5
MODEL_PREFIX: Final = "ft:"
MODEL_SUFFIX_CHARACTERS: Final = 8
PURPOSE: Final = "fine-tune"
PLAIN_TEXT: Final = "text"  # a dialect
LORA: Final = ("rank", "alpha", "dropout")
# what a group has that is no hyper-parameter of the trainer
OWN: Final[Mapping[str, tuple[str, ...]]] = {
    "training": ("slots", "length_policy", "validation_fraction"),
    "eval": ("validation_fraction", "drop_max"),
}
# groups that take a few names only; the others take every hyper-parameter
GROUPS: Final[Mapping[str, tuple[str, ...]]] = {"lora": LORA, "eval": OWN["eval"]}
LENGTH_POLICY: Final = "training.length_policy"
FileRole = Literal["training_file", "validation_file"]


@dataclass(frozen=True)
class Wishes:
    """What the hyper-parameter groups of a request come to. `paths`: name → where it was asked."""

    hyper: dict[str, Any]
    paths: dict[str, str]
    slots: int
    length_policy: LengthPolicy
    validation_fraction_ppm: int
    drop_max_ppm: int | None


@dataclass(frozen=True)
class InputFile:
    """A file of the tenant as the read model has it; `validation` is null while it is checked."""

    id: str
    purpose: str
    status: str
    validation: Validation | None


@dataclass(frozen=True)
class Minted:
    """What the gateway adds to a request: identifiers, and fields sealed for the tenant."""

    job_id: str
    tenant: str
    seed: int
    suffix: Sealed | None
    metadata: Sealed | None
    series: str


def check(request: JobRequest, base: Base | None) -> Wishes:
    """Raises ApiError with every problem of the request; `param` names the first.

    A base model that is not known is a problem of its own (404 when it is the only one).
    """
    found: list[ParameterProblem] = [
        *_method_problems(request),
        *_integration_problems(request),
    ]
    wishes, more = _wishes(request)
    found += more
    if base is not None:
        told = problems(wishes.hyper, base)
        found += [
            ParameterProblem(param=wishes.paths.get(one.param, one.param), message=one.message)
            for one in told
        ]
    if base is None and not found:
        raise unknown_model(request.model)
    if base is None:
        found.insert(
            0, ParameterProblem(param="model", message=unknown_model(request.model).message)
        )
    if found:
        code = UNSUPPORTED if found[0].param.startswith(("method.type", "integrations")) else None
        raise several(found, code)
    return wishes


def several(found: list[ParameterProblem], code: str | None = None) -> ApiError:
    """One error that lists every problem."""
    text = "; ".join(f"{one.param}: {one.message}" for one in found)
    lead = f"{len(found)} problems: " if len(found) > 1 else ""
    return invalid(lead + text, found[0].param, code or "invalid_value")


def unknown_model(name: str) -> ApiError:
    if name.startswith(MODEL_PREFIX):
        message = f"Training begins with a base model, and {name!r} is a fine-tuned one. "
        message += "GET /v1/models?type=base lists the base models."
        return ApiError(400, UNSUPPORTED, message, "model")
    message = f"The model '{name}' does not exist. GET /v1/models lists the base models."
    return ApiError(404, errors.UNKNOWN_BASE, message, "model")


def check_file(file: InputFile | None, file_id: str, role: FileRole) -> InputFile:
    """The file, where a job may name it. Raises ApiError."""
    if file is None:
        raise ApiError(404, errors.NOT_FOUND, f"No such File object: {file_id}", role)
    check_purpose(file_id, file.purpose, role)
    if file.status == "error":
        found = file.validation
        count = "" if found is None else f" with {found.errors} errors"
        told = "" if found is None or found.message is None else f"{found.message} "
        raise invalid(
            f"{file_id} was rejected{count}. {told}GET /v1/files/{file_id}/validation lists them; "
            "correct the file and upload it again.",
            role,
            (found and found.code) or errors.FILE_REJECTED,
        )
    return file


def check_split(wishes: Wishes, file: InputFile) -> None:
    """Raises ApiError; a file that is still being validated is checked when it is prepared."""
    dialect = None if file.validation is None else file.validation.dialect
    if wishes.length_policy == "split" and dialect not in (None, PLAIN_TEXT):
        raise invalid(
            f"{LENGTH_POLICY}: only plain text can be split, and {file.id} is {dialect}; use "
            'reject or truncate, or upload rows of {"text": …}.',
            LENGTH_POLICY,
            "invalid_value",
        )


def with_files(request: JobRequest, training: InputFile, held_out: InputFile | None) -> JobRequest:
    """The request with its files by their ids: it may have called them `faq@2`."""
    held_out_id = None if held_out is None else held_out.id
    named = {"training_file": training.id, "validation_file": held_out_id}
    return request.model_copy(update=named)


def check_purpose(file_id: str, purpose: str, role: FileRole) -> None:
    """Raises ApiError 400 for a file that is not for fine-tuning."""
    if purpose != PURPOSE:
        text = f"{file_id} has the purpose {purpose!r}; upload it with purpose {PURPOSE!r}."
        raise invalid(text, role)


def tokens_of(file: InputFile, base: Base) -> BaseTokens | None:
    """Exact counts under this base's tokenizer; null while the file is being validated."""
    if file.validation is None:
        return None
    for counted in file.validation.tokens:
        if (counted.base_id, counted.base_sha256) == (base.base_id, base.sha256):
            return counted
    raise invalid(
        f"{file.id} was checked before {base.base_id} was added. Upload it again.",
        "training_file",
        errors.FILE_REJECTED,
    )


def hyper_of(
    wishes: Wishes,
    base: Base,
    tokens: BaseTokens | None,
    seed: int,
    device: Device,
    fraction_ppm: int,
) -> tuple[HyperParameters, tuple[str, ...]]:
    return resolve(wishes.hyper, base, tokens, seed, device, fraction_ppm)


def build_spec(
    request: JobRequest,
    wishes: Wishes,
    base: Base,
    tokens: BaseTokens | None,
    price: Price,
    device: Device,
    minted: Minted,
) -> JobSpec:
    """The job as it goes on the log: no "auto" left, every input named."""
    fraction_ppm = 0 if request.validation_file else wishes.validation_fraction_ppm
    hyper, auto = hyper_of(wishes, base, tokens, minted.seed, device, fraction_ppm)
    return JobSpec(
        base=base,
        training_file=request.training_file,
        validation_file=request.validation_file,
        hyper=hyper,
        auto=auto,
        length_policy=wishes.length_policy,
        validation_fraction_ppm=fraction_ppm,
        slots=wishes.slots,
        pool=POOL,
        suffix=minted.suffix,
        metadata=minted.metadata,
        series=minted.series,
        model_id=model_id(base.base_id, minted.tenant, request.suffix, minted.job_id),
        price=price,
        device=device,
        budget=budget_of(request),
        drop_max_ppm=wishes.drop_max_ppm,
    )


def budget_of(request: JobRequest) -> Budget | None:
    asked = request.budget
    if asked is None:
        return None
    hours = asked.max_gpu_hours
    return Budget(
        max_gpu_ms=None if hours is None else round(hours * HOUR_MS),
        max_amount_micro=asked.max_amount_micro,
    )


def model_id(base_id: str, tenant: str, suffix: str | None, job_id: str) -> str:
    """`ft:{base}:{organisation}:{suffix}:{8 characters}`; without a suffix its place is empty."""
    return (
        f"{MODEL_PREFIX}{base_id}:{tenant}:{slug(suffix or '')}:{job_id[-MODEL_SUFFIX_CHARACTERS:]}"
    )


def slug(suffix: str) -> str:
    """The suffix as it can stand in an identifier and in a URL."""
    return re.sub(r"[^a-z0-9._-]+", "-", suffix.lower()).strip("-")


def canonical(request: JobRequest) -> bytes:
    """The same bytes for the same request, whatever the order of fields and the white space."""
    return msgspec.json.encode(request.model_dump(mode="json"), order="sorted")


# --- hyper-parameters -----------------------------------------------------------------------------


def _groups(request: JobRequest) -> list[tuple[str, Mapping[str, Any]]]:
    details = request.method.supervised if request.method else None
    return [
        ("method.supervised.hyperparameters", (details and details.hyperparameters) or {}),
        ("hyperparameters", request.hyperparameters or {}),
        ("lora", request.lora or {}),
        ("training", request.training or {}),
        ("eval", request.eval or {}),
    ]


def _wishes(request: JobRequest) -> tuple[Wishes, list[ParameterProblem]]:
    found: list[ParameterProblem] = []
    hyper: dict[str, Any] = {}
    paths: dict[str, str] = {}
    own: dict[str, Any] = {}
    for group, values in _groups(request):
        for name, value in values.items():
            path = f"{group}.{name}"
            known = GROUPS.get(group)
            into = own if name in OWN.get(group, ()) else hyper
            if known is not None and name not in known:
                text = f"unknown; {group} takes {', '.join(known)}"
                found.append(ParameterProblem(param=path, message=text))
            elif name in paths and into[name] != value:
                found.append(
                    ParameterProblem(param=path, message=f"also given as {paths[name]}; keep one")
                )
            else:
                into[name], paths[name] = value, path
    slots = _slots(own.get("slots"), found)
    fraction, fraction_path = own.get("validation_fraction"), paths.get("validation_fraction", "")
    fraction_ppm = _share_ppm(fraction, fraction_path, VALIDATION_FRACTION_MAX, found)
    if fraction_ppm is None:
        fraction_ppm = VALIDATION_FRACTION_PPM
    drop_ppm = _share_ppm(own.get("drop_max"), "eval.drop_max", DROP_MAX, found)
    policy: LengthPolicy = "reject"
    if (asked := own.get("length_policy", policy)) in LENGTH_POLICIES:
        policy = asked
    elif asked is not None:
        text = f"must be one of {', '.join(LENGTH_POLICIES)}"
        found.append(ParameterProblem(param=LENGTH_POLICY, message=text))
    return Wishes(hyper, paths, slots, policy, fraction_ppm, drop_ppm), found


def _slots(value: Any, found: list[ParameterProblem]) -> int:
    if value is None:
        return 1
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= SLOTS_MAX:
        return int(value)
    text = f"must be a whole number from 1 to {SLOTS_MAX}; it is {repr_short(value)}"
    found.append(ParameterProblem(param="training.slots", message=text))
    return 1


def _share_ppm(value: Any, path: str, most: float, found: list[ParameterProblem]) -> int | None:
    if value is None:
        return None
    good = isinstance(value, int | float) and not isinstance(value, bool)
    if good and 0 <= value <= most:
        return round(float(value) * PPM)
    text = f"must be a number from 0 to {most}; it is {repr_short(value)}"
    found.append(ParameterProblem(param=path, message=text))
    return None


def _method_problems(request: JobRequest) -> list[ParameterProblem]:
    method = request.method
    if method is None:
        return []
    if method.type not in METHODS:
        known = ", ".join(METHODS)
        text = f"{method.type!r} is not supported here; supported: {known}"
        return [ParameterProblem(param="method.type", message=text)]
    others = [name for name in ("dpo", "reinforcement") if getattr(method, name) is not None]
    return [
        ParameterProblem(
            param=f"method.{name}", message=f"does not belong to the method {method.type!r}"
        )
        for name in others
    ]


def _integration_problems(request: JobRequest) -> list[ParameterProblem]:
    if not request.integrations:
        return []
    text = "not supported here; metrics are in the job's events and in GET …/{id}/events"
    return [ParameterProblem(param="integrations", message=text)]
