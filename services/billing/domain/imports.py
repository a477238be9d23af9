"""Imports of accounts: at most a few at a time, and each ends once."""

from typing import assert_never

from schemas import errors
from schemas.account import Event
from schemas.envelope import reject
from schemas.imports import (
    IMPORTS_OPEN_MAX,
    EndImport,
    ImportAdvanced,
    ImportCommand,
    ImportEnded,
    ImportEvent,
    ImportStarted,
    RecordImport,
    StartImport,
)
from schemas.reasons import refusing
from services.billing.domain.state import AccountState


def decide(tenant: AccountState, command: ImportCommand) -> tuple[Event, ...]:
    """Decide a command about an import."""
    if isinstance(command, StartImport):
        if len(tenant.imports) >= IMPORTS_OPEN_MAX:
            most = refusing("imports_at_most", limit=IMPORTS_OPEN_MAX)
            return reject(errors.CONCURRENCY_LIMIT, most)
        return (ImportStarted(terms=command.terms),)
    import_id = command.result.import_id if isinstance(command, EndImport) else command.import_id
    if import_id not in tenant.imports:
        missing = refusing("import_missing", import_id=import_id)
        return reject(errors.NOT_FOUND, missing, "import_id")
    match command:
        case RecordImport(progress=progress):
            return (ImportAdvanced(import_id=import_id, progress=progress),)
        case EndImport(result=result):
            return (ImportEnded(result=result),)
        case _:
            assert_never(command)


def evolve_imports(imports: tuple[str, ...], event: ImportEvent) -> tuple[str, ...]:
    """Open imports after an event."""
    match event:
        case ImportStarted(terms=terms):
            return (*imports, terms.import_id)
        case ImportAdvanced():
            return imports
        case ImportEnded(result=result):
            return tuple(name for name in imports if name != result.import_id)
        case _:
            assert_never(event)
