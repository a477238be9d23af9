"""`/v1/datasets`, and `/v1/files/{id}/diff`: what changed from one version to another."""

from typing import Annotated, Final

from fastapi import Query

from services.gateway.accounts.deps import limits_of
from services.gateway.files.deps import WithFileDeps
from services.gateway.files.domain.bodies import check_purpose
from services.gateway.files.domain.names import label
from services.gateway.files.domain.preview_tasks import COMPARE_LOCALLY, Comparison
from services.gateway.files.domain.responses import (
    DatasetResponse,
    FileDifferenceResponse,
    dataset_response,
    difference_response,
)
from services.gateway.files.routes import known_file
from services.gateway.views.tables.files import DATASETS, FileRow
from services.gateway.web.deps import Caller
from services.gateway.web.domain.errors import invalid
from services.gateway.web.domain.responses import Unseal
from services.gateway.web.resources import Resource, each
from services.gateway.web.routing import new_router
from services.gateway.web.storage import within

NAMES_MAX: Final = 1_000  # as many as a tenant may have
COMPARED_BYTES_MAX: Final = 64 * 1024 * 1024  # of one file
Before = Annotated[
    str | None,
    Query(max_length=256, description="a file's id, or `name@version`; else the version before"),
]
router = new_router("files")


DATASET: Final = Resource(
    noun="dataset",
    table=DATASETS,
    response=DatasetResponse,
    respond=each(lambda deps, row: dataset_response(row, deps.unseal)),
    limit=NAMES_MAX,
    limit_max=NAMES_MAX,
)
DATASET.add_list(
    router,
    "/v1/datasets",
    "list_datasets",
    "List datasets, last changed first. `GET /v1/files?dataset=NAME` lists the versions of one.",
)


@router.get("/v1/files/{file_id}/diff")
async def diff_files(
    file_id: str, deps: WithFileDeps, caller: Caller, before: Before = None
) -> FileDifferenceResponse:
    """Compare two files: rows added, rows removed, and rows with another answer."""
    limits = await limits_of(deps, caller.tenant)
    with deps.previews.admit(caller.tenant, limits.previews_max) as folder:
        after = await known_file(deps, caller, file_id)
        named = before or _version_before(after, deps.unseal)
        files = [await known_file(deps, caller, named), after]
        for file in files:
            check_purpose(file.id, file.purpose, "training_file")
            if file.bytes > COMPARED_BYTES_MAX:
                text = f"{file.id} has more than {COMPARED_BYTES_MAX} bytes. {COMPARE_LOCALLY}"
                raise invalid(text, "before")
        paths = [folder / name for name in ("before", "after")]
        for file, path in zip(files, paths, strict=True):
            await within(deps.blobs.get_file(file.blob, path), file.bytes)
        task = Comparison(before=str(paths[0]), after=str(paths[1]))
        difference = (await deps.previews.ask(task, caller.tenant, limits.niceness))["difference"]
    names = [(label(file, deps.unseal) or file.id, file.id) for file in files]
    return difference_response(difference, *names)


def _version_before(file: FileRow, unseal: Unseal) -> str:
    """The name of the previous version. Raises ApiError 400."""
    name = unseal(file.dataset_name, "dataset")
    if name is None or file.version is None or file.version == 1:
        raise invalid(f"No version comes before {file.id}; name a file.", "before")
    return f"{name}@{file.version - 1}"
