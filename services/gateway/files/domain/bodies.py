"""Bodies of requests about files and uploads."""

from typing import Annotated, Final, Literal

from pydantic import Field, StrictInt, StringConstraints

from schemas.storage import Purpose
from services.gateway.files.domain.names import NAME
from services.gateway.web.domain.bodies import INT_MAX, NAME_MAX, Body, Id, Name
from services.gateway.web.domain.errors import invalid

PURPOSE: Final = "fine-tune"
BATCH: Final = "batch"
PURPOSES: Final[tuple[Purpose, ...]] = (PURPOSE, BATCH)
RESULTS: Final = "fine-tune-results"
BASE_MODEL: Final = "base-model"  # a file of one, uploaded by an operator
BASE_FILES_MAX: Final = 256
BASE_FILE: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$"
EXPIRES_S_MIN: Final = 3_600
EXPIRES_S_MAX: Final = 2_592_000
EXPIRES_RANGE: Final = f"{EXPIRES_S_MIN}…{EXPIRES_S_MAX}"
PARTS_MAX: Final = 2_000  # of one upload


def check_purpose(file_id: str, purpose: str, role: str) -> None:
    """Raises ApiError 400 for a file that is not for fine-tuning. role: field that names it."""
    if purpose != PURPOSE:
        text = f"{file_id} has the purpose {purpose!r}; upload it with purpose {PURPOSE!r}."
        raise invalid(text, role)


def known_purpose(purpose: str) -> Purpose:
    """Return what a file may be uploaded for. Raises ApiError 400."""
    for known in PURPOSES:
        if purpose == known:
            return known
    raise invalid(wrong_purpose(purpose), "purpose", "invalid_value")


def wrong_purpose(purpose: str) -> str:
    return f"{purpose[:64]!r} is not supported here; use {', '.join(PURPOSES)}"


class ExpiresAfter(Body):
    """When a file expires. It is kept for longer while a job needs it."""

    anchor: Literal["created_at"]
    seconds: Annotated[StrictInt, Field(ge=EXPIRES_S_MIN, le=EXPIRES_S_MAX)]

    @property
    def ms(self) -> int:
        return 1_000 * self.seconds


class UploadRequest(Body):
    """A file that is uploaded in parts; `bytes` is the size of the whole file."""

    bytes: Annotated[StrictInt, Field(ge=1, le=INT_MAX)]
    filename: Annotated[str, StringConstraints(strict=True, min_length=1, max_length=NAME_MAX)]
    mime_type: Name
    purpose: Name
    expires_after: ExpiresAfter | None = None
    dataset: Annotated[str, StringConstraints(strict=True, pattern=f"^{NAME}$")] | None = Field(
        default=None, description="the file becomes the next version of this dataset"
    )


class BaseFolderRequest(Body):
    """Request to make a base model's folder of uploaded files. `files`: name in the folder → id of
    a file that was uploaded with purpose `base-model`.
    """

    name: Annotated[str, StringConstraints(strict=True, max_length=64, pattern=BASE_FILE)]
    files: Annotated[
        dict[Annotated[str, StringConstraints(strict=True, pattern=BASE_FILE)], Id],
        Field(min_length=1, max_length=BASE_FILES_MAX),
    ]


class CompleteRequest(Body):
    """`part_ids` in the order of the file's bytes; `md5` of the whole file, in hex."""

    part_ids: Annotated[list[Id], Field(min_length=1, max_length=PARTS_MAX)]
    md5: Annotated[str | None, StringConstraints(strict=True, pattern="^[0-9a-fA-F]{32}$")] = None
