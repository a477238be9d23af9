"""`/v1/batches`."""

from collections.abc import Mapping
from typing import Final

from schemas import errors
from schemas.batch import BatchEndpoint, BatchTerms, CancelBatch, CreateBatch
from schemas.dataset import FileContent
from schemas.ids import BATCH
from schemas.topics import ACCOUNT
from services.gateway.batches.domain.responses import (
    WINDOW_MS,
    BatchRequest,
    BatchResponse,
    batch_response,
    status_of,
)
from services.gateway.chat.spending import refuse_above_budget
from services.gateway.files.domain.bodies import BATCH as BATCH_PURPOSE
from services.gateway.files.domain.bodies import ExpiresAfter
from services.gateway.files.routes import known_file
from services.gateway.jobs.domain.texts import as_text
from services.gateway.views.tables.batches import BATCHES, BatchRow
from services.gateway.views.tables.files import FileRow
from services.gateway.web.deps import Caller, Deps, Principal, WithDeps
from services.gateway.web.domain.errors import ApiError, invalid
from services.gateway.web.resources import Resource, each
from services.gateway.web.routing import new_router

LISTED_MAX: Final = 100  # batches of one page, as OpenAI
router = new_router("batches")


def _respond(deps: Deps, row: BatchRow) -> BatchResponse:
    return batch_response(row, deps.unseal)


BATCH_RESOURCE: Final = Resource(
    noun="Batch object",
    table=BATCHES,
    response=BatchResponse,
    respond=each(_respond),
    limit=20,
    limit_max=LISTED_MAX,
    param="batch_id",
)


@router.post("/v1/batches")
async def create_batch(body: BatchRequest, deps: WithDeps, caller: Caller) -> BatchResponse:
    """Answer each row of a file at low priority: questions that wait for an answer come first."""
    file = await known_file(deps, caller, body.input_file_id)
    if file.purpose != BATCH_PURPOSE:
        text = f"{file.id} has the purpose {file.purpose!r}; upload it with {BATCH_PURPOSE!r}"
        raise invalid(text, "input_file_id")
    await refuse_above_budget(deps, caller)
    return await start_batch(
        *(deps, caller, file, body.endpoint, deps.fresh(BATCH)),
        metadata=body.metadata,
        expires=body.output_expires_after,
    )


async def start_batch(
    deps: Deps,
    caller: Principal,
    file: FileRow,
    endpoint: BatchEndpoint,
    batch_id: str,
    *,
    metadata: Mapping[str, str] | None = None,
    expires: ExpiresAfter | None = None,
) -> BatchResponse:
    """Begin a batch with the rows of a file. Raises ApiError."""
    terms = BatchTerms(
        batch_id=batch_id,
        endpoint=endpoint,
        input_file_id=file.id,
        content=FileContent(bytes=file.bytes, sha256=file.sha256, blob=file.blob),
        key_id=caller.key_id,
        window_ms=WINDOW_MS,
        output_expires_after_ms=None if expires is None else expires.ms,
        metadata=None
        if metadata is None
        else deps.seal.seal(caller.tenant, as_text(metadata), "metadata"),
    )
    await deps.decide(caller, ACCOUNT, CreateBatch(terms=terms))
    return await BATCH_RESOURCE.retrieve(deps, caller.rows, terms.batch_id)


BATCH_RESOURCE.add_list(router, "/v1/batches", "list_batches", "List batches, newest first.")
BATCH_RESOURCE.add_retrieve(
    router,
    "/v1/batches/{batch_id}",
    "retrieve_batch",
    "A batch. Its files have the answers of all rows that were answered.",
)


@router.post("/v1/batches/{batch_id}/cancel")
async def cancel_batch(batch_id: str, deps: WithDeps, caller: Caller) -> BatchResponse:
    """Answer no more rows. What was answered is in the output file."""
    row = await BATCH_RESOURCE.find(deps, caller.rows, batch_id)
    if row.ended_at is not None:
        text = f"Cannot cancel a batch with status '{status_of(row)}'."
        raise ApiError(409, errors.ILLEGAL_STATE, text, "batch_id")
    await deps.decide(caller, ACCOUNT, CancelBatch(batch_id=row.id))
    return await BATCH_RESOURCE.retrieve(deps, caller.rows, row.id)
