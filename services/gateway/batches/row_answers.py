"""Answers the rows of a batch, and records them in the order of the file.

A few rows are asked at a time. Those that have ended at the front are recorded together, with their
tokens: after a crash the rows that follow the recorded ones are asked, and nothing is billed twice.
"""

import asyncio
import hashlib
import logging
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, Final, TypeAlias

import msgspec
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from schemas.answers import AnswerUse
from schemas.batch import (
    PROBLEMS_MAX,
    ROWS_MAX,
    AnswerBatchRows,
    BatchCounts,
    BatchCreated,
    BatchEndpoint,
    BatchPart,
    BatchProblem,
    BatchResult,
    BeginBatch,
    CancelBatch,
    EndBatch,
)
from schemas.dataset import FileContent
from schemas.ids import MODEL as MODEL_PREFIX
from schemas.topics import ACCOUNT
from schemas.units import Ms
from services.gateway.accounts.auth import principal_of
from services.gateway.batches.domain.rows import (
    BatchLine,
    EndedRow,
    RowRequest,
    answered_line,
    cut_lines,
    error_line,
    problem_line,
    read_row,
    tokens_of,
)
from services.gateway.chat.completion_routes import create_completion
from services.gateway.chat.domain.bodies import ChatRequest, SamplingFields
from services.gateway.chat.domain.completion_bodies import (
    CompletionRequest,
    EmbeddingRequest,
    ResponseRequest,
)
from services.gateway.chat.embedding_routes import create_embeddings
from services.gateway.chat.response_routes import create_response
from services.gateway.chat.routes import create_chat_completion
from services.gateway.models.routes import find_base
from services.gateway.views.tables.batches import BATCHES, BatchRow
from services.gateway.views.todos import BATCH_ROWS
from services.gateway.web.deps import Deps, Principal
from services.gateway.web.domain.errors import RATE_LIMIT, ApiError, invalid
from services.gateway.web.problems import error_of, fault, validated
from tunery.platform.answer_files import sum_of
from tunery.platform.seal.model_names import with_shown_names
from tunery.runtime.blobs.abstract import BlobMissing, blob_key
from tunery.runtime.telemetry.logs import log_event
from tunery.runtime.verbs import Effect, GoOnLater, Outage, RetryLater, Send

LOG: Final = logging.getLogger("tunery.gateway")
BATCHES_AT_ONCE: Final = 4  # in one process
OF_TENANT_AT_ONCE: Final = 2  # batches of one tenant, in all processes
ROWS_AT_ONCE: Final = 8  # of one batch
ROW_TEXTS_MAX: Final = 256  # whose vectors are in memory together, with those of other rows
ROW_TRIES_MAX: Final = 3  # of a row that the engine fails to answer
ROW_PAUSE_MS: Final[Ms] = 2_000  # before a row is asked again
LEASE_MS: Final[Ms] = 9_000  # after a kill, another process goes on when it is over
Ask = Callable[[Any, Deps, Principal], Awaitable[Response]]


async def _chat(body: ChatRequest, deps: Deps, caller: Principal) -> Response:
    return await create_chat_completion(body, _request(), deps, caller)


async def _respond(body: ResponseRequest, deps: Deps, caller: Principal) -> Response:
    return await create_response(body, _request(), deps, caller)


def _request() -> Request:
    """Request without headers, as the routes of answers look at nothing else."""
    return Request({"type": "http", "headers": []})


RowBody: TypeAlias = SamplingFields | ResponseRequest | EmbeddingRequest
ENDPOINTS: Final[Mapping[BatchEndpoint, tuple[type[RowBody], Ask]]] = {
    "/v1/chat/completions": (ChatRequest, _chat),
    "/v1/completions": (CompletionRequest, create_completion),
    "/v1/responses": (ResponseRequest, _respond),
    "/v1/embeddings": (EmbeddingRequest, create_embeddings),
}


def answer_batches(deps: Deps) -> Effect[BatchCreated]:
    """The effect that answers the rows of a batch."""

    async def run(created: BatchCreated, tenant: str, _: int = 1) -> Send | None:
        batch_id = created.terms.batch_id
        row = await deps.views.first(BATCHES, {"tenant": tenant, "id": batch_id})
        if row is None or row.why is not None or row.ended_at is not None:
            return None
        try:
            return await _run(deps, row)
        except BlobMissing:
            if row.counts is not None:  # so that what was answered is not lost
                return _send(row, CancelBatch(batch_id=row.id))
            return _send(row, failed(row.id, BatchProblem(code="file_missing")))
        except ApiError as error:
            if error.status == 404:
                return None  # it has ended, or its tenant is being erased
            raise later(error) from error

    return Effect(
        kind=BATCH_ROWS,
        body=BatchCreated,
        run=run,
        exhausted=lambda created, tenant, _: give_up(created.terms.batch_id, tenant),
        unrecorded=True,
        row_lease_ms=LEASE_MS,
        concurrency=BATCHES_AT_ONCE,
        of_tenant_max=OF_TENANT_AT_ONCE,
    )


def later(error: ApiError) -> Exception:
    """Return how an effect says that its command is to be sent again."""
    if error.status == 409:  # another process was faster, or the batch is closing
        return GoOnLater(ROW_PAUSE_MS)
    return Outage(error.message) if error.status >= 500 else RetryLater(error.message)


def give_up(batch_id: str, tenant: str) -> Send:
    """Return the command that ends a batch that can be worked on no more."""
    ended = failed(batch_id, BatchProblem(code="not_processed"))
    return Send("account", tenant, tenant, ended)


def failed(batch_id: str, *problems: BatchProblem) -> EndBatch:
    """The command that ends a batch with problems."""
    return EndBatch(result=BatchResult(batch_id=batch_id, problems=problems))


def _send(row: BatchRow, command: EndBatch | CancelBatch) -> Send:
    return Send("account", row.tenant, row.tenant, command)


async def _run(deps: Deps, row: BatchRow) -> Send | None:
    """Check the file unless that is done, then answer the rows that have no answer yet."""
    caller = replace(await principal_of(deps, row.tenant, row.key_id), in_batch=True)
    if row.rows is None:
        rows, problems = await _check(deps, row)
        if len(problems) == rows or rows > ROWS_MAX:
            few = problems[:PROBLEMS_MAX] or [BatchProblem(code="empty_file")]
            too_many = [BatchProblem(code="too_many_rows")]
            return _send(row, failed(row.id, *(too_many if rows > ROWS_MAX else few)))
        await deps.decide(caller, ACCOUNT, BeginBatch(batch_id=row.id, rows=rows))
    counts = row.counts or BatchCounts()
    asked: deque[asyncio.Task[EndedRow]] = deque()
    left = counts.ended  # rows to pass over
    try:
        async for _, read in rows_of(deps, row):
            if left:
                left -= 1
                continue
            asked.append(asyncio.create_task(_answer(deps, caller, row, read), name="batch row"))
            if len(asked) >= ROWS_AT_ONCE:
                counts = await _record(deps, caller, row, asked, counts)
        while asked:
            counts = await _record(deps, caller, row, asked, counts)
    finally:
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
    return None


def folder_of(batch: BatchRow) -> str:
    """Folder of the blobs with answers, which are there until the files are written."""
    return f"files/{batch.id}"


async def lines_of(chunks: AsyncIterator[bytes]) -> AsyncIterator[BatchLine]:
    """The lines of a file that are not blank."""
    number, rest = 0, b""
    async for chunk in chunks:
        lines, rest = cut_lines(rest, chunk)
        for line in lines:
            number += 1
            if line.strip():
                yield BatchLine(number, line)
    if rest.strip():
        yield BatchLine(number + 1, rest)


async def rows_of(
    deps: Deps, row: BatchRow
) -> AsyncIterator[tuple[int, RowRequest | BatchProblem]]:
    """The number of each line of the input file, and its row. Raises BlobError."""
    known = set[str]()
    content = row.content
    async for line in lines_of(deps.blobs.stream(content.blob, sha256=content.sha256)):
        yield line.number, read_row(line, row.endpoint, known)
        await asyncio.sleep(0)  # a large file must not hold up the requests of others


async def _check(deps: Deps, row: BatchRow) -> tuple[int, list[BatchProblem]]:
    """The number of rows, as far as one too many, and those that are bad."""
    rows, problems = 0, list[BatchProblem]()
    async for line, read in rows_of(deps, row):
        rows += 1
        if isinstance(read, BatchProblem):
            problems.append(read)
        else:
            try:
                _body_of(row.endpoint, read)
            except ApiError as error:
                wrong = error.param or "body"
                problems.append(BatchProblem(code="invalid_request_body", line=line, param=wrong))
        if rows > ROWS_MAX:
            break
    return rows, problems


def _body_of(endpoint: BatchEndpoint, row: RowRequest) -> BaseModel:
    """The body of a row. Raises ApiError 400."""
    kind, _ = ENDPOINTS[endpoint]
    body = validated(kind, row.body)
    if isinstance(body, EmbeddingRequest):
        if len(body.input) > ROW_TEXTS_MAX:
            text = f"has {len(body.input)} texts; a row of a batch may have {ROW_TEXTS_MAX}"
            raise invalid(text, "input")
    elif body.stream:
        raise invalid("is not supported in a batch; leave it out", "stream")
    return body


async def _answer(
    deps: Deps, caller: Principal, batch: BatchRow, row: RowRequest | BatchProblem
) -> EndedRow:
    """Ask a row until it has an answer, or an error that would come again."""
    line_id = deps.fresh("batch_req_")
    if isinstance(row, BatchProblem):
        return EndedRow(problem_line(line_id, row))
    failures = 0
    while True:
        try:
            return await _ask(deps, caller, batch.endpoint, row, line_id)
        except Exception as exception:
            error = error_of(exception)
            if error is None:
                log_event(LOG, logging.ERROR, "batch.row_failed", exception, batch_id=batch.id)
                return EndedRow(error_line(line_id, row, fault(line_id)))
            failures += error.code == "engine_failed"
            is_busy = error.status == 503 or error.code == RATE_LIMIT
            if not is_busy or failures >= ROW_TRIES_MAX:
                return EndedRow(error_line(line_id, row, error))
        await deps.clock.sleep(ROW_PAUSE_MS)


async def _ask(
    deps: Deps, caller: Principal, endpoint: BatchEndpoint, row: RowRequest, line_id: str
) -> EndedRow:
    """Raises ApiError, and whatever routes raise."""
    _, ask = ENDPOINTS[endpoint]
    began_ms = deps.clock.now_ms()
    answer = await ask(_body_of(endpoint, row), deps, caller)
    body = msgspec.json.decode(answer.body)
    name = body["model"]
    if not name.startswith(MODEL_PREFIX) and (base := await find_base(deps, name)) is not None:
        name = base.base_id  # not its alias
    use = tokens_of(body, caller.key_id, name, deps.clock.now_ms() - began_ms)
    shown = with_shown_names(deps.seal, caller.tenant, body)
    return EndedRow(answered_line(line_id, row, 200, shown), use)


async def _record(
    deps: Deps,
    caller: Principal,
    batch: BatchRow,
    asked: deque[asyncio.Task[EndedRow]],
    counts: BatchCounts,
) -> BatchCounts:
    """Wait for the first row, and record it with the rows after it that have ended, too.

    Raises ApiError, BlobError.
    """
    ended = [await asked[0]]
    asked.popleft()
    while asked and asked[0].done():
        ended.append(asked.popleft().result())
    data = b"".join(msgspec.json.encode(row.line) + b"\n" for row in ended)
    key = blob_key(batch.tenant, folder_of(batch), hashlib.sha256(data).hexdigest(), ".jsonl")
    stored = await deps.blobs.put(key, data)
    completed = sum(row.completed for row in ended)
    after = BatchCounts(
        completed=counts.completed + completed, failed=counts.failed + len(ended) - completed
    )
    part = BatchPart(
        first=counts.ended,
        counts=after,
        lines=FileContent(bytes=stored.bytes, sha256=stored.sha256, blob=stored.key),
    )
    uses = defaultdict[str, list[AnswerUse]](list)  # by model
    for row in ended:
        if row.use is not None:
            uses[row.use.model].append(row.use)
    summed = tuple(sum_of(same) for same in uses.values())
    command = AnswerBatchRows(batch_id=batch.id, part=part, uses=summed)
    await deps.decide(caller, ACCOUNT, command)
    return after
