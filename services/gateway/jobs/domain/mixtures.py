"""Further files that a job trains on, `training.mixture` of a request: what is asked for, and what
is wrong with it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from reprlib import repr as repr_short
from typing import Any, Final

from schemas import errors
from schemas.dataset import BaseTokens
from schemas.submission import MixtureFile
from schemas.units import PPM
from services.gateway.jobs.domain.bodies import JobRequest
from services.gateway.views.tables.files import FileRow
from services.gateway.web.domain.errors import ApiError, invalid

MIXTURE: Final = "training.mixture"
MIXTURE_FILES_MAX: Final = 8
WEIGHT_MAX: Final = 10
WEIGHT_MIN_PPM: Final = 1_000
WEIGHT: Final = 1.0  # each row once in an epoch, as of the training file
FIELDS: Final = ("file", "weight")


@dataclass(frozen=True)
class RequestedFile:
    """A file of a mixture as a request names it: `file-…`, or `faq@2`."""

    reference: str
    weight_ppm: int
    param: str  # its place in the request


def requested_mixture(value: Any) -> tuple[tuple[RequestedFile, ...], list[tuple[str, str]]]:
    """The files of a mixture, and all problems as field and message."""
    if value is None:
        return (), []
    if not isinstance(value, list) or not 0 < len(value) <= MIXTURE_FILES_MAX:
        text = f'must be a list of 1 to {MIXTURE_FILES_MAX} of {{"file": "file-…", "weight": 0.5}}'
        return (), [(MIXTURE, text)]
    files: list[RequestedFile] = []
    problems: list[tuple[str, str]] = []
    for number, item in enumerate(value):
        of_item = list(_problems(f"{MIXTURE}.{number}", item))
        problems += of_item
        if not of_item:
            weight_ppm = round(float(item.get("weight", WEIGHT)) * PPM)
            files.append(RequestedFile(item["file"], weight_ppm, f"{MIXTURE}.{number}.file"))
    return tuple(files), problems


def _problems(param: str, item: Any) -> list[tuple[str, str]]:
    if not isinstance(item, dict):
        return [(param, 'must be {"file": "file-…", "weight": 0.5}')]
    problems = [
        (f"{param}.{name}", f"is not known; there are {', '.join(FIELDS)}")
        for name in item
        if name not in FIELDS
    ]
    if not isinstance(item.get("file"), str) or not item["file"]:
        problems.append((f"{param}.file", "must be the id or name (faq@2) of an uploaded file"))
    weight = item.get("weight", WEIGHT)
    is_number = isinstance(weight, int | float) and not isinstance(weight, bool)
    if not is_number or not WEIGHT_MIN_PPM / PPM <= weight <= WEIGHT_MAX:
        text = (
            f"must be a number from {WEIGHT_MIN_PPM / PPM} to {WEIGHT_MAX}: how often an epoch "
            f"sees each row; it is {repr_short(weight)}"
        )
        problems.append((f"{param}.weight", text))
    return problems


def references_of(request: JobRequest) -> list[str]:
    """The files that the mixture of a request names, right or wrong."""
    files, _ = requested_mixture((request.training or {}).get("mixture"))
    return [file.reference for file in files]


def mixture_file(
    file: FileRow, tokens: BaseTokens | None, asked: RequestedFile, used: Mapping[str, str]
) -> MixtureFile:
    """A usable file of a mixture as it is written on the log. Raises ApiError.

    tokens: tokens of the file under the job's base model; None: it is being checked
    used: the fields of the request that name other files, by their ids
    """
    if file.id in used:
        text = (
            f"{file.id} is named as {used[file.id]} already. Name each file once; a weight above 1 "
            "shows rows more often."
        )
        raise invalid(text, asked.param, "invalid_value")
    if tokens is None:
        text = (
            f"{file.id} is still being checked. Submit the job once GET /v1/files/{file.id} says "
            '"processed".'
        )
        raise ApiError(409, errors.ILLEGAL_STATE, text, asked.param)
    return MixtureFile(
        file_id=file.id, weight_ppm=asked.weight_ppm, sha256=file.sha256, tokens=tokens
    )


def as_requested(mixture: tuple[MixtureFile, ...]) -> list[dict[str, Any]]:
    return [{"file": file.file_id, "weight": file.weight_ppm / PPM} for file in mixture]
