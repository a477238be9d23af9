"""Waits for the answers to commands, as the SDK polls for them."""

import asyncio
from typing import Any, Final, assert_never

from fastapi import Response
from starlette.responses import JSONResponse

from schemas import errors
from schemas.reasons import WaitCode
from schemas.session import name_of
from services.gateway.jobs.deps import JobDeps
from services.gateway.sessions.conversions import pass_output, sample_output
from services.gateway.sessions.credit import paused
from services.gateway.views.tables.jobs import JOBS, JobRow
from services.gateway.views.tables.sessions import SESSION_COMMANDS, SessionCommandRow
from services.gateway.web.deps import Principal
from services.gateway.web.domain.errors import ApiError
from services.gateway.web.storage import within
from services.gateway.wording import failure_words, unblock_words, wait_words
from tunery.runtime.blobs.abstract import BlobMissing
from tunery.work.session import (
    FailedAnswer,
    PassAnswer,
    PathAnswer,
    SampleAnswer,
    StepAnswer,
    decode_answer,
)

WAIT_S: Final = 20.0  # a request waits no longer
LOOK_S: Final = (0.02, 0.25)  # between two looks, from the first to the last
PROTOBUF: Final = "application/x-protobuf"
BEGUN: Final = "0"  # name of the future that a session has begun
AT_CAP: Final[WaitCode] = "session_cap"


def future_id(session_id: str, name: str) -> str:
    """Return what the SDK asks for the answer with."""
    return f"{session_id}/{name}"


async def answer_of(deps: JobDeps, caller: Principal, request_id: str) -> Response:
    """Return the answer to a command, or that it is to be asked for again (408)."""
    session_id, _, name = request_id.partition("/")
    pause_s, until = LOOK_S[0], asyncio.get_running_loop().time() + WAIT_S
    while True:
        job = await deps.views.first(JOBS, {"tenant": caller.tenant, "id": session_id})
        if job is None or job.spec.session is None:
            raise _unknown(request_id)
        if name == BEGUN:
            if job.started_at is not None:
                return JSONResponse({"type": "create_model", "model_id": session_id})
        else:
            row = await _command(deps, caller, session_id, name)
            if row is None:
                raise _unknown(request_id)
            if row.answer is not None:
                return await _answer(deps, row, session_id)
        if job.outcome is not None:
            return _failed(ended_words(job))
        if job.reason is not None and job.reason.code == AT_CAP:
            raise paused(f"{wait_words(job.reason)} {unblock_words(job.reason)}")
        if asyncio.get_running_loop().time() + pause_s > until:
            return await _again(deps, job, request_id)
        await asyncio.sleep(pause_s)
        pause_s = min(1.5 * pause_s, LOOK_S[1])


async def _command(
    deps: JobDeps, caller: Principal, session_id: str, name: str
) -> SessionCommandRow | None:
    where = {"tenant": caller.tenant, "session_id": session_id, "id": name}
    return await deps.views.first(SESSION_COMMANDS, where)


def _unknown(request_id: str) -> ApiError:
    message = f"There is no request {request_id!r}."
    return ApiError(404, errors.NOT_FOUND, message, "request_id")


async def _answer(deps: JobDeps, row: SessionCommandRow, session_id: str) -> Response:
    file = row.answer
    if file is None:
        raise ValueError("the command is not answered")
    try:
        content = await within(deps.blobs.get(file.blob, sha256=file.sha256), file.bytes)
    except BlobMissing as error:
        message = f"The answer to {future_id(session_id, row.id)!r} was erased with its session."
        raise ApiError(404, errors.NOT_FOUND, message, "request_id") from error
    answer = decode_answer(content)
    match answer:
        case PassAnswer():
            return Response(pass_output(answer), media_type=PROTOBUF)
        case SampleAnswer():
            return Response(sample_output(answer), media_type=PROTOBUF)
        case StepAnswer():
            return JSONResponse({"metrics": {"grad_norm:mean": answer.grad_norm}})
        case PathAnswer():
            return JSONResponse(_path(row, session_id, answer.path))
        case FailedAnswer():
            return _failed(answer.message)
        case _:
            assert_never(answer)


def _path(row: SessionCommandRow, session_id: str, path: str) -> dict[str, Any]:
    match row.kind:
        case "load_state":
            return {"type": "load_weights", "path": path, "model_id": session_id}
        case "save_state":
            return {"type": "save_weights", "path": path}
        case _:
            return {
                "type": "save_weights_for_sampler",
                "path": path,
                "sampling_session_id": f"{path}#{name_of('', row.seq)}",
            }


def _failed(message: str) -> Response:
    return JSONResponse({"error": message, "category": "user"})


def ended_words(job: JobRow) -> str:
    """Say why a session takes no more commands and gives no more answers."""
    why = "" if job.failure is None else f": {failure_words(job.failure)}"
    return f"The session {job.id} has ended ({job.outcome}){why}. Create another model."


async def _again(deps: JobDeps, job: JobRow, request_id: str) -> Response:
    """Answer that it is to be asked for again, and why it waits."""
    outlook = await deps.queues.outlook_of(job)
    known = None if outlook is None else outlook.reason
    reason = wait_words(known or job.reason)
    waits = job.phase != "running"
    content: dict[str, Any] = {
        "type": "try_again",
        "request_id": request_id,
        "queue_state": "paused_capacity" if waits else "active",
        "queue_state_reason": reason if waits else None,
    }
    return JSONResponse(content, 408)
