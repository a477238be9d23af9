"""`account` → imports, and what is to be done for them."""

from typing import assert_never

from schemas.envelope import Header
from schemas.imports import ImportAdvanced, ImportEnded, ImportEvent, ImportStarted
from services.gateway.views.tables.imports import IMPORTS, ImportRow
from services.gateway.views.todos import IMPORT_KEY, IMPORT_RUN
from tunery.runtime.verbs import Change, Done, Todo


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
