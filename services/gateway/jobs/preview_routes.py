"""`/v1/fine_tuning/preview`: rows of a file as the tokens that a base model would train on."""

from pathlib import Path
from typing import Final

from services.gateway.accounts.deps import limits_of
from services.gateway.files.deps import WithFileDeps
from services.gateway.files.domain.bodies import check_purpose
from services.gateway.files.domain.preview_tasks import Preview
from services.gateway.files.routes import known_file
from services.gateway.jobs.domain.bodies import PreviewRequest
from services.gateway.jobs.domain.responses import PreviewResponse
from services.gateway.jobs.submission import find_start
from services.gateway.models.domain.names import unknown_model
from services.gateway.models.routes import find_base
from services.gateway.views.tables.files import FileRow
from services.gateway.web.deps import Caller, Deps
from services.gateway.web.routing import new_router
from services.gateway.web.storage import within

BEGINNING_BYTES: Final = 32 * 1024 * 1024  # of a larger file only this much is read
router = new_router("fine-tuning")


@router.post("/v1/fine_tuning/preview")
async def preview_rows(body: PreviewRequest, deps: WithFileDeps, caller: Caller) -> PreviewResponse:
    """Show the first valid rows as tokens with their loss mask, and problems of rows before.

    An own version or checkpoint is trained on with the tokenizer of its base model.
    """
    limits = await limits_of(deps, caller.tenant)
    with deps.previews.admit(caller.tenant, limits.previews_max) as folder:
        start = await find_start(deps, caller.tenant, body.model)
        base = await find_base(deps, body.model) if start is None else start.base
        if base is None:
            raise unknown_model(body.model)
        file = await known_file(deps, caller, body.training_file)
        check_purpose(file.id, file.purpose, "training_file")
        path = folder / "rows"
        await _beginning(deps, file, path)
        task = Preview(
            path=str(path),
            base_path=base.path,
            rows=body.rows,
            max_length=body.max_length,
            length_policy=body.length_policy,
            reasoning=body.reasoning,
        )
        rows = await deps.previews.ask(task, caller.tenant, limits.niceness)
    return PreviewResponse(
        model=base.base_id,
        training_file=file.id,
        data=rows["data"],
        problems=rows["problems"],
    )


async def _beginning(deps: Deps, file: FileRow, path: Path) -> None:
    """Copy the file, or the complete lines of its beginning, to a path."""
    if file.bytes <= BEGINNING_BYTES:
        await within(deps.blobs.get_file(file.blob, path), file.bytes)
        return
    kept = bytearray()
    chunks = deps.blobs.stream(file.blob)
    while len(kept) < BEGINNING_BYTES and (chunk := await within(anext(chunks, b""))):
        kept += chunk
    path.write_bytes(kept[: kept.rfind(b"\n") + 1])
