"""`session` → sessions, commands, saved weights."""

from typing import Any

from schemas.envelope import Header
from schemas.session import (
    CommandAnswered,
    CommandTaken,
    SessionClosed,
    SessionEnding,
    SessionOpened,
    SessionTouched,
)
from services.gateway.views.tables.sessions import (
    SAVED_WEIGHTS,
    SESSION_COMMANDS,
    SESSIONS,
    SavedWeightsRow,
    SessionCommandRow,
    SessionRow,
)
from tunery.runtime.verbs import Change


def project_session(header: Header, event: Any) -> tuple[Change, ...]:
    """Rows that follow from one event of `session`."""
    key = {"tenant": header.tenant, "id": header.key}
    match event:
        case SessionOpened(terms=terms):
            row = SessionRow(
                tenant=header.tenant,
                id=header.key,
                client=terms.client,
                opened_at=header.at,
                max_tokens=terms.max_tokens,
            )
            return (SESSIONS.insert(row),)
        case CommandTaken(command=command):
            command_row = SessionCommandRow.of(
                command,
                tenant=header.tenant,
                id=command.name,
                session_id=header.key,
                taken_at=header.at,
                path=command.saved,
            )
            return (SESSION_COMMANDS.insert(command_row),)
        case CommandAnswered():
            return _answered(header, event)
        case SessionTouched():
            return (SESSIONS.update(key, touched_at=header.at),)
        case SessionEnding():
            return (SESSIONS.update(key, why=event.why),)
        case SessionClosed():
            return (SESSIONS.update(key, closed_at=header.at),)
        case _:
            return ()


def _answered(header: Header, event: CommandAnswered) -> tuple[Change, ...]:
    key = {"tenant": header.tenant, "session_id": header.key, "id": event.name}
    answered = SESSION_COMMANDS.update(
        key, answered_at=header.at, answer=event.answer, failed=event.failed
    )
    if not event.saved:
        return (answered,)
    row = SavedWeightsRow(
        tenant=header.tenant,
        id=event.path,
        session_id=header.key,
        command=event.name,
        saved_at=header.at,
        files=event.saved,
    )
    return (answered, SAVED_WEIGHTS.insert(row))
