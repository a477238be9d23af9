"""Writes what the rows of a batch were answered as files of the tenant, and ends the batch."""

from collections.abc import AsyncIterator
from typing import Any, Final, Literal

import msgspec

from schemas.batch import BatchClosing, BatchCounts, BatchResult, EndBatch
from schemas.ids import FILE, derived_id
from schemas.storage import FileTerms
from schemas.topics import ACCOUNT
from services.gateway.accounts.auth import principal_of
from services.gateway.batches.domain.rows import RowRequest, belongs_in_output, expired_line
from services.gateway.batches.row_answers import LEASE_MS, folder_of, give_up, later, rows_of
from services.gateway.files.routes import register_stored
from services.gateway.views.ports import Cursor
from services.gateway.views.tables.batches import BATCH_PARTS, BATCHES, BatchRow
from services.gateway.views.tables.files import FILES
from services.gateway.views.todos import BATCH_FILES
from services.gateway.web.deps import Deps, Principal
from services.gateway.web.domain.errors import ApiError
from tunery.runtime.blobs.abstract import BlobMissing
from tunery.runtime.verbs import Effect

PAGE: Final = 1_000
ResultKind = Literal["output", "error"]


def batch_files(deps: Deps) -> Effect[BatchClosing]:
    """The effect that writes the output file and the error file of a batch."""

    async def run(closing: BatchClosing, tenant: str, _: int = 1) -> None:
        row = await deps.views.first(BATCHES, {"tenant": tenant, "id": closing.batch_id})
        if row is None or row.ended_at is not None:
            return
        try:
            caller = await principal_of(deps, tenant, row.key_id)
            result = BatchResult(
                batch_id=row.id,
                output_file_id=await _write(deps, caller, row, "output"),
                error_file_id=await _write(deps, caller, row, "error"),
            )
            await deps.decide(caller, ACCOUNT, EndBatch(result=result))
        except ApiError as error:
            if error.status == 404:
                return  # it has ended, or its tenant is being erased
            raise later(error) from error
        await deps.blobs.delete_below(f"t/{tenant}/{folder_of(row)}/")

    return Effect(
        kind=BATCH_FILES,
        body=BatchClosing,
        run=run,
        exhausted=lambda closing, tenant, _: give_up(closing.batch_id, tenant),
        unrecorded=True,
        row_lease_ms=LEASE_MS,
    )


async def _write(deps: Deps, caller: Principal, row: BatchRow, kind: ResultKind) -> str | None:
    """Store and register a file; return its id, or None where it would be empty.

    Raises ApiError, BlobError.
    """
    file_id = FILE + derived_id(row.tenant, row.id, kind)
    if await deps.views.first(FILES, {"tenant": row.tenant, "id": file_id}) is not None:
        return file_id
    async with await deps.blobs.upload(f"t/{row.tenant}/files/{file_id}") as upload:
        is_empty = True
        async for line in _lines(deps, row):
            if belongs_in_output(line) == (kind == "output"):
                is_empty = False
                await upload.write(msgspec.json.encode(line) + b"\n")
        if is_empty:
            return None
        stored = await upload.complete()
    terms = FileTerms(
        purpose="batch_output",
        name=deps.seal.seal(row.tenant, f"{row.id}_{kind}.jsonl", "name"),
        expires_after_ms=row.output_expires_after_ms,
    )
    await register_stored(deps, caller, file_id, terms, stored)
    return file_id


async def _lines(deps: Deps, row: BatchRow) -> AsyncIterator[dict[str, Any]]:
    """Lines of the rows that have ended, and of those that have expired."""
    where, after = {"tenant": row.tenant, "batch_id": row.id}, None
    while True:
        parts = await deps.views.page(BATCH_PARTS, where, limit=PAGE, after=after, descending=False)
        for part in parts:
            data = await deps.blobs.get(part.lines.blob, sha256=part.lines.sha256)
            for text in data.splitlines():
                yield msgspec.json.decode(text)
        if len(parts) < PAGE:
            break
        after = Cursor(parts[-1].id, parts[-1].id)
    if row.why == "expired":
        async for line in _expired(deps, row):
            yield line


async def _expired(deps: Deps, row: BatchRow) -> AsyncIterator[dict[str, Any]]:
    left = (row.counts or BatchCounts()).ended  # rows to pass over
    try:
        async for number, read in rows_of(deps, row):
            if left:
                left -= 1
            elif isinstance(read, RowRequest):
                yield expired_line(f"batch_req_{derived_id(row.id, str(number))}", read)
    except BlobMissing:
        return  # the tenant has deleted the input file
