"""`/v1/sessions`: sessions and their commands, for people; the SDK has routes of its own."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Final, Literal

from fastapi import Depends, Request
from msgspec import structs
from pydantic import Field, StrictInt

from schemas.ids import JOB as JOB_PREFIX
from schemas.job import RaiseSession
from schemas.session import EndSession, SavedIn, SessionCommandKind, SessionEnd
from schemas.topics import JOB as JOB_STREAM
from schemas.topics import SESSION as SESSION_STREAM
from schemas.training import BlobFile
from schemas.units import DAY_MS, Tokens
from services.gateway.files.routes import known_file
from services.gateway.jobs.deps import JobDeps, WithJobDeps
from services.gateway.jobs.domain.bodies import Suffix
from services.gateway.jobs.domain.evaluations import import_spec
from services.gateway.jobs.domain.responses import JobResponse
from services.gateway.jobs.domain.statuses import JobStatus, job_status
from services.gateway.jobs.evaluation_routes import (
    ImportedAs,
    import_folder,
    job_of_import,
    resolve_import,
)
from services.gateway.jobs.submission import Intent, Submissions, intent_of
from services.gateway.sessions.bodies import SavedName
from services.gateway.sessions.creation import MINUTE_MS, MINUTES_MAX, TOKENS_MAX, lora_of
from services.gateway.sessions.paths import SavedPath
from services.gateway.views.ports import Where
from services.gateway.views.tables.jobs import JOBS, JobRow
from services.gateway.views.tables.sessions import (
    SAVED_WEIGHTS,
    SESSION_COMMANDS,
    SESSIONS,
    SessionCommandRow,
    SessionRow,
)
from services.gateway.web.deps import Caller, Deps, WithDeps
from services.gateway.web.domain.bodies import Body, Id
from services.gateway.web.domain.errors import not_found
from services.gateway.web.domain.responses import ListItem, Seconds
from services.gateway.web.resources import Resource, each
from services.gateway.web.routing import new_router
from services.gateway.web.storage import within
from tunery.work.session import ADAPTER_ONLY

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
    erased_at: Seconds | None  # when bodies, answers and what it had saved were
    kept_days: int  # how long those stay after its end
    ends: SessionEnd | None  # why it is ending, or has ended: by its client, or without a sign
    max_tokens: Tokens  # tokens that its commands may have
    max_minutes: int  # how long it may have its slots


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
        max_minutes=row.max_ms // MINUTE_MS,
        kept_days=row.kept_ms // DAY_MS,
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


class RaiseRequest(Body):
    """The caps of a session from now on; null keeps one as it is."""

    max_tokens: Annotated[StrictInt, Field(ge=1, le=TOKENS_MAX)] | None = None
    max_minutes: Annotated[StrictInt, Field(ge=1, le=MINUTES_MAX)] | None = None


class PublishedSession(Body):
    """Fields by which a repeated request is recognised."""

    session_id: str
    name: str
    suffix: str | None
    validation_file: str | None


class PublishRequest(Body):
    """Weights that were saved for a sampler, by their name, and what they become a version as."""

    name: SavedName
    suffix: Suffix = None
    validation_file: Id | None = Field(
        default=None, description="rows of your own, on which the gate compares it with its base"
    )


@router.post("/{session_id}/versions", status_code=201)
async def publish_weights(
    session_id: str,
    body: PublishRequest,
    request: Request,
    deps: WithJobDeps,
    caller: Caller,
    intent: Annotated[Intent, Depends(intent_of)],
) -> JobResponse:
    """Make a version of weights that a session has saved.

    The response is the job in which the gate compares them with their base model. Then they are a
    version like any other, the job's `fine_tuned_model`, whose lineage names the session.
    """
    await SESSION.find(deps, caller.rows, session_id)
    path = SavedPath(session_id, ADAPTER_ONLY, body.name)
    where = {"tenant": caller.tenant, "session_id": session_id}
    where["id"] = path.row_id(deps.seal, caller.tenant)
    saved = await deps.views.first(SAVED_WEIGHTS, where)
    trained = await deps.views.first(JOBS, {"tenant": caller.tenant, "id": session_id})
    if saved is None or trained is None:
        raise not_found("weights for a sampler", str(path), "name")
    spec = trained.spec
    asked = ImportedAs(
        model=spec.base.base_id, suffix=body.suffix, validation_file=body.validation_file
    )
    if asked.validation_file is not None:
        await known_file(deps, caller, asked.validation_file)
    job_id = deps.fresh(JOB_PREFIX)
    submissions: Submissions = request.app.state.submissions
    lora = lora_of(spec.hyper.rank, spec.hyper.target_modules)
    resolved = await resolve_import(submissions, caller, asked, lora, job_id)
    saved_in = SavedIn(session_id=session_id, command=saved.command)
    files = await _copy(deps, saved.files, import_folder(caller.tenant, job_id))
    resolved = replace(resolved, spec=import_spec(resolved.spec, files, saved_in))
    repeated = PublishedSession(session_id=session_id, **dict(body))
    submitting = submissions.decide(caller, job_id, resolved, repeated, intent)
    return await job_of_import(deps, files, submitting)


async def _copy(deps: JobDeps, files: Sequence[BlobFile], folder: str) -> tuple[BlobFile, ...]:
    """Copy files of a session: those of a version are its own, and outlive the session's."""
    copies = tuple(structs.replace(file, blob=f"{folder}/{file.name}") for file in files)
    for file, copied in zip(files, copies, strict=True):
        content = deps.blobs.stream(file.blob, sha256=file.sha256)
        await within(deps.blobs.put(copied.blob, content, sha256=file.sha256), file.bytes)
    return copies


@router.post("/{session_id}/raise")
async def raise_session(
    session_id: str, body: RaiseRequest, deps: WithDeps, caller: Caller
) -> SessionResponse:
    """Let a session use more. One that has used up its time goes on; its price is held anew."""
    row = await SESSION.find(deps, caller.rows, session_id)
    max_ms = row.max_ms if body.max_minutes is None else MINUTE_MS * body.max_minutes
    raised = RaiseSession(
        job_id=session_id, max_tokens=body.max_tokens or row.max_tokens, max_ms=max_ms
    )
    await deps.decide(caller, JOB_STREAM, raised)
    session = await SESSION.retrieve(deps, caller.rows, session_id)
    # the row changes later, with the reaction of `session`
    changed = {"max_tokens": raised.max_tokens, "max_minutes": max_ms // MINUTE_MS}
    return session.model_copy(update=changed)


@router.post("/{session_id}/end")
async def end_session(session_id: str, deps: WithDeps, caller: Caller) -> SessionResponse:
    """End a session: what was asked before is done, its weights are saved, and it is billed."""
    row = await SESSION.find(deps, caller.rows, session_id)
    if row.closed_at is None:
        await deps.decide(caller, SESSION_STREAM, EndSession(), key=session_id)
    return await SESSION.retrieve(deps, caller.rows, session_id)
