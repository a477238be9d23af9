"""`account` → batches, what their rows were answered, and what is to be done for them."""

from typing import assert_never

from schemas.batch import (
    BatchBegun,
    BatchClosing,
    BatchCreated,
    BatchEnded,
    BatchEvent,
    BatchRowsAnswered,
)
from schemas.envelope import Header
from schemas.imports import ImportAdvanced, ImportEnded, ImportEvent, ImportStarted
from services.gateway.views.tables.batches import BATCH_PARTS, BATCHES, BatchPartRow, BatchRow
from services.gateway.views.tables.imports import IMPORTS, ImportRow
from services.gateway.views.todos import BATCH_FILES, BATCH_ROWS, IMPORT_KEY, IMPORT_RUN
from tunery.runtime.verbs import Change, Done, Todo


def project_batch(header: Header, event: BatchEvent) -> tuple[Change, ...]:
    """Rows of batches that follow from one event."""
    tenant = header.key

    def key(batch_id: str) -> dict[str, str]:
        return {"tenant": tenant, "id": batch_id}

    match event:
        case BatchCreated(terms=terms):
            row = BatchRow.of(
                terms,
                tenant=tenant,
                id=terms.batch_id,
                sequence=header.seq,
                created_at=header.at,
            )
            return (BATCHES.insert(row), _todo(header, BATCH_ROWS, terms.batch_id, event))
        case BatchBegun(batch_id=batch_id, rows=rows):
            return (BATCHES.update(key(batch_id), begun_at=header.at, rows=rows),)
        case BatchRowsAnswered(batch_id=batch_id, part=part):
            answered = BatchPartRow(
                tenant=tenant, batch_id=batch_id, id=f"{part.first:06}", lines=part.lines
            )
            counts = BATCHES.update(key(batch_id), counts=part.counts)
            return (counts, BATCH_PARTS.insert(answered))
        case BatchClosing(batch_id=batch_id, why=why):
            return (
                BATCHES.update(key(batch_id), why=why, closing_at=header.at),
                Done(BATCH_ROWS, f"{tenant}/{batch_id}"),
                _todo(header, BATCH_FILES, batch_id, event),
            )
        case BatchEnded(result=result):
            batch_id = result.batch_id
            return (
                BATCHES.update(key(batch_id), result=result, ended_at=header.at),
                BATCH_PARTS.delete({"tenant": tenant, "batch_id": batch_id}),
                Done(BATCH_ROWS, f"{tenant}/{batch_id}"),
                Done(BATCH_FILES, f"{tenant}/{batch_id}"),
            )
        case _:
            assert_never(event)


def _todo(header: Header, kind: str, batch_id: str, event: BatchCreated | BatchClosing) -> Todo:
    return Todo(kind, f"{header.key}/{batch_id}", header.key, header.tenant, event)


def project_import(header: Header, event: ImportEvent) -> tuple[Change, ...]:
    """Rows of imports that follow from one event."""
    tenant = header.key
    match event:
        case ImportStarted(terms=terms):
            row = ImportRow(
                id=terms.import_id,
                tenant=tenant,
                sequence=header.seq,
                created_at=header.at,
                source=terms.source,
                url=terms.url,
            )
            todo = Todo(IMPORT_RUN, f"{tenant}/{row.id}", tenant, header.tenant, event)
            return (IMPORTS.insert(row), todo)
        case ImportAdvanced(import_id=import_id, progress=progress):
            return (IMPORTS.update({"tenant": tenant, "id": import_id}, progress=progress),)
        case ImportEnded(result=result):
            name = f"{tenant}/{result.import_id}"
            key = {"tenant": tenant, "id": result.import_id}
            return (
                IMPORTS.update(key, result=result, ended_at=header.at),
                Done(IMPORT_RUN, name),
                Todo(IMPORT_KEY, name, tenant, header.tenant, event),
            )
        case _:
            assert_never(event)
