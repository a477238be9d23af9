"""`session` → sessions, commands, saved weights."""

from typing import Any

from schemas.envelope import Header
from schemas.session import (
    CommandAnswered,
    CommandTaken,
    SessionClosed,
    SessionEnding,
    SessionErased,
    SessionOpened,
    SessionTermsSet,
    SessionTouched,
)
from schemas.units import hour_of
from services.gateway.views.tables.billing import SESSION_USES, SessionUseRow
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
                max_ms=terms.max_ms,
                kept_ms=terms.kept_ms,
            )
            return (SESSIONS.insert(row),)
        case SessionTermsSet(terms=terms):
            return (SESSIONS.update(key, max_tokens=terms.max_tokens, max_ms=terms.max_ms),)
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
        case SessionErased():
            of_session = {"tenant": header.tenant, "session_id": header.key}
            erased = SESSIONS.update(key, erased_at=header.at)
            return (erased, SAVED_WEIGHTS.delete(of_session))
        case _:
            return ()


def _answered(header: Header, event: CommandAnswered) -> tuple[Change, ...]:
    key = {"tenant": header.tenant, "session_id": header.key, "id": event.name}
    answered = SESSION_COMMANDS.update(
        key, answered_at=header.at, answer=event.answer, failed=event.failed
    )
    use = SessionUseRow.of(
        event.tokens,
        tenant=header.tenant,
        id=f"{header.partition}/{header.incarnation}/{header.offset:016}",
        session_id=header.key,
        hour_utc=hour_of(header.at),
        price_version=event.price_version,
    )
    changes = (answered, SESSION_USES.insert(use))
    if not event.saved:
        return changes
    row = SavedWeightsRow(
        tenant=header.tenant,
        id=event.path,
        session_id=header.key,
        command=event.name,
        saved_at=header.at,
        files=event.saved,
    )
    return (*changes, SAVED_WEIGHTS.insert(row))
