"""Batches: which rows have ended, and when no more are answered."""

from typing import assert_never

from immutables import Map
from msgspec.structs import replace

from schemas import errors
from schemas.account import Event
from schemas.batch import (
    BATCHES_OPEN_MAX,
    AnswerBatchRows,
    BatchBegun,
    BatchClosing,
    BatchCommand,
    BatchCreated,
    BatchEnded,
    BatchEvent,
    BatchRowsAnswered,
    BeginBatch,
    CancelBatch,
    CreateBatch,
    EndBatch,
)
from schemas.billing import PriceBook
from schemas.envelope import Context, reject
from schemas.reasons import refusing
from schemas.units import Ms
from services.billing.domain.plans import count_answers
from services.billing.domain.state import AccountState, OpenBatch


def deadline_of(tenant: AccountState) -> Ms | None:
    """Return when the next completion window of the tenant is over."""
    answering = (batch.expires_at for batch in tenant.batches.values() if batch.closing is None)
    return min(answering, default=None)


def due_batches(tenant: AccountState, ctx: Context) -> tuple[BatchClosing, ...]:
    """Close batches whose completion window is over."""
    return tuple(
        BatchClosing(batch_id=name, why="expired")
        for name, batch in sorted(tenant.batches.items())
        if batch.closing is None and batch.expires_at <= ctx.at
    )


def decide(
    tenant: AccountState, command: BatchCommand, ctx: Context, books: Map[str, PriceBook]
) -> tuple[Event, ...]:
    """Decide a command about a batch."""
    if isinstance(command, CreateBatch):
        if len(tenant.batches) >= BATCHES_OPEN_MAX:
            most = refusing("batches_at_most", limit=BATCHES_OPEN_MAX)
            return reject(errors.CONCURRENCY_LIMIT, most)
        if command.terms.batch_id in tenant.batches:
            exists = refusing("batch_exists", batch_id=command.terms.batch_id)
            return reject(errors.ALREADY_EXISTS, exists)
        return (BatchCreated(terms=command.terms),)
    batch_id = command.result.batch_id if isinstance(command, EndBatch) else command.batch_id
    batch = tenant.batches.get(batch_id)
    if batch is None:
        return reject(errors.NOT_FOUND, refusing("batch_missing", batch_id=batch_id), "batch_id")
    if isinstance(command, EndBatch):
        return (BatchEnded(result=command.result),)
    if isinstance(command, CancelBatch):
        closing = BatchClosing(batch_id=batch_id, why="cancelled")
        return () if batch.closing is not None else (closing,)
    if batch.closing is not None:
        return reject(errors.ILLEGAL_STATE, refusing("batch_closing", batch_id=batch_id))
    match command:
        case BeginBatch():
            return () if batch.rows else (BatchBegun(batch_id=batch_id, rows=command.rows),)
        case AnswerBatchRows():
            return _answer(tenant, batch, command, ctx, books)
        case _:
            assert_never(command)


def _answer(
    tenant: AccountState,
    batch: OpenBatch,
    command: AnswerBatchRows,
    ctx: Context,
    books: Map[str, PriceBook],
) -> tuple[Event, ...]:
    """Accept the next rows with their tokens. Reports of other rows are refused."""
    part = command.part
    if part.first != batch.counts.ended or part.counts.ended <= part.first:
        answered = refusing("batch_rows_answered", batch_id=command.batch_id, row=part.first + 1)
        return reject(errors.ILLEGAL_STATE, answered)
    events: list[Event] = [BatchRowsAnswered(batch_id=command.batch_id, part=part)]
    if command.uses:
        events.append(count_answers(tenant, command.uses, ctx.at, books))
    if part.counts.ended == batch.rows:
        events.append(BatchClosing(batch_id=command.batch_id, why="completed"))
    return tuple(events)


def evolve_batches(batches: Map[str, OpenBatch], event: BatchEvent, at: Ms) -> Map[str, OpenBatch]:
    """Open batches after an event."""
    if isinstance(event, BatchCreated):
        terms = event.terms
        return batches.set(terms.batch_id, OpenBatch(expires_at=at + terms.window_ms))
    batch_id = event.result.batch_id if isinstance(event, BatchEnded) else event.batch_id
    batch = batches.get(batch_id)
    if batch is None:
        return batches
    match event:
        case BatchBegun():
            return batches.set(batch_id, replace(batch, rows=event.rows))
        case BatchRowsAnswered():
            return batches.set(batch_id, replace(batch, counts=event.part.counts))
        case BatchClosing():
            return batches.set(batch_id, replace(batch, closing=event.why))
        case BatchEnded():
            return batches.delete(batch_id)
        case _:
            assert_never(event)
