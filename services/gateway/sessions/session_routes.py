"""`/v1/sessions`: sessions and their commands, for people; the SDK has routes of its own."""

from collections.abc import Sequence
from typing import Final, Literal

from schemas.session import EndSession, SessionCommandKind, SessionEnd
from schemas.topics import SESSION as SESSION_STREAM
from schemas.units import Tokens
from services.gateway.jobs.domain.statuses import JobStatus, job_status
from services.gateway.views.ports import Where
from services.gateway.views.tables.jobs import JOBS, JobRow
from services.gateway.views.tables.sessions import (
    SESSION_COMMANDS,
    SESSIONS,
    SessionCommandRow,
    SessionRow,
)
from services.gateway.web.deps import Caller, Deps, WithDeps
from services.gateway.web.domain.responses import ListItem, Seconds
from services.gateway.web.resources import Resource, each
from services.gateway.web.routing import new_router

LIMIT: Final = 20
LIMIT_MAX: Final = 100
router = new_router("sessions", "/v1/sessions")


class SessionResponse(ListItem):
    """A session. It is a job as well, of the same id."""

    object: Literal["session"] = "session"
    id: str
    status: JobStatus | None  # null: the job is not known yet
    model: str | None
    rank: int | None
    created_at: Seconds
    last_seen_at: Seconds | None  # when its client last gave a sign
    closed_at: Seconds | None
    ends: SessionEnd | None  # why it is ending, or has ended: by its client, or without a sign
    max_tokens: Tokens  # tokens that its commands may have


class SessionCommandResponse(ListItem):
    """A command of a session."""

    object: Literal["session.command"] = "session.command"
    id: str  # its name in the session
    kind: SessionCommandKind
    seq: int
    tokens: Tokens
    created_at: Seconds
    answered_at: Seconds | None
    failed: bool | None


async def _respond(deps: Deps, rows: Sequence[SessionRow]) -> list[SessionResponse]:
    """Sessions of one tenant with their jobs as they are now."""
    where = {"tenant": rows[0].tenant if rows else "", "id": tuple(row.id for row in rows)}
    jobs = {job.id: job for job in await deps.views.page(JOBS, where, limit=LIMIT_MAX)}
    return [_session_response(row, jobs.get(row.id)) for row in rows]


def _session_response(row: SessionRow, job: JobRow | None) -> SessionResponse:
    return SessionResponse.of(
        row,
        status=None if job is None else job_status(job.wanted, job.phase, job.outcome),
        model=None if job is None else job.spec.base.base_id,
        rank=None if job is None else job.spec.hyper.rank,
        created_at=row.opened_at,
        last_seen_at=row.touched_at,
        ends=row.why,
    )


SESSION: Final = Resource(
    noun="session",
    table=SESSIONS,
    response=SessionResponse,
    respond=_respond,
    limit=LIMIT,
    limit_max=LIMIT_MAX,
)
SESSION.add_list(router, "", "list_sessions", "List sessions, newest first.")
SESSION.add_retrieve(router, "/{session_id}", "retrieve_session")


def _command_response(row: SessionCommandRow) -> SessionCommandResponse:
    return SessionCommandResponse.of(row, created_at=row.taken_at)


async def commands_of_session(session_id: str, deps: WithDeps, caller: Caller) -> Where:
    """Commands of a session. Raises ApiError 404."""
    await SESSION.find(deps, caller.rows, session_id)
    return {"tenant": caller.tenant, "session_id": session_id}


COMMAND: Final = Resource(
    noun="command",
    table=SESSION_COMMANDS,
    response=SessionCommandResponse,
    respond=each(lambda _, row: _command_response(row)),
    rows=commands_of_session,
)
COMMAND.add_list(
    router,
    "/{session_id}/commands",
    "list_session_commands",
    "List the commands of a session, newest first.",
)


@router.post("/{session_id}/end")
async def end_session(session_id: str, deps: WithDeps, caller: Caller) -> SessionResponse:
    """End a session: what was asked before is done, its weights are saved, and it is billed."""
    row = await SESSION.find(deps, caller.rows, session_id)
    if row.closed_at is None:
        await deps.decide(caller, SESSION_STREAM, EndSession(), key=session_id)
    return await SESSION.retrieve(deps, caller.rows, session_id)
