"""`/api/v1`: what the Tinker SDK calls for a training loop of the tenant's own.

The paths, fields and statuses are the SDK's. 408 says that an answer is to be asked for again, and
why it waits.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from fastapi import Request, Response
from msgspec.structs import replace

from schemas import errors
from schemas.account import Lane
from schemas.session import (
    SESSIONS,
    EndSession,
    SessionCommand,
    SessionCommandKind,
    TakeCommand,
    TouchSession,
)
from schemas.topics import SESSION
from schemas.training import BlobFile
from schemas.units import Ms, Tokens
from services.gateway.jobs.deps import JobDeps, WithJobDeps
from services.gateway.sessions.bodies import (
    ClientSessionRequest,
    CreateModelRequest,
    FutureRequest,
    HeartbeatRequest,
    LoadRequest,
    ModelRequest,
    SampleRequest,
    SamplerRequest,
    SavedKind,
    SaveRequest,
    StepRequest,
    WeightsRequest,
)
from services.gateway.sessions.conversions import (
    ROWS_MAX,
    ModelLimits,
    decompressed,
    pass_body,
    read_pass,
    sample_body,
    step_body,
)
from services.gateway.sessions.creation import create_session
from services.gateway.sessions.credit import paused_without_credit
from services.gateway.sessions.futures import BEGUN, answer_of, ended_words, future_id
from services.gateway.sessions.paths import WITHOUT_NAME, SavedPath, parse_path
from services.gateway.sessions.samplers import (
    SESSIONS_MAX,
    Sampler,
    first_difference,
    lora_like,
    read_sampler,
    session_for,
    takes_commands,
)
from services.gateway.views.tables.accounts import TENANTS
from services.gateway.views.tables.jobs import JOBS, JobRow
from services.gateway.views.tables.models import BASES
from services.gateway.views.tables.sessions import SAVED_WEIGHTS, SavedWeightsRow
from services.gateway.views.tables.sessions import SESSIONS as SESSION_ROWS
from services.gateway.web.deps import Caller, Principal
from services.gateway.web.domain.errors import ApiError, invalid
from services.gateway.web.domain.scopes import SDK_PREFIX
from services.gateway.web.routing import new_router
from services.gateway.web.storage import within
from tunery.runtime.blobs.abstract import blob_key
from tunery.work.session import (
    ADAPTER_ONLY,
    WHOLE_STATE,
    Body,
    LoadBody,
    SaveBody,
    encode_body,
)

BODY_BYTES: Final = 900_000  # of a pass; with what is around it less than the edge lets through
IN_FLIGHT_BYTES: Final = 20_000_000
TOUCH_MS: Final[Ms] = 60_000  # the log is told so often that a client is there
BASES_MAX: Final = 1_000
CLIENT: Final = "client-"
WARNING: Final = "The unembedding layer is not adapted here, whatever train_unembed says."
# the protobuf that FastAPI does not read for us
PASS: Final = {
    "requestBody": {
        "content": {"application/x-protobuf": {"schema": {"type": "string", "format": "binary"}}},
        "required": True,
    }
}
router = new_router("sessions", SDK_PREFIX.rstrip("/"))


@dataclass(frozen=True)
class RunningSession:
    """A session that takes commands."""

    deps: JobDeps
    caller: Principal
    job: JobRow

    @property
    def limits(self) -> ModelLimits:
        """The limits of its model."""
        spec = self.job.spec
        return ModelLimits(spec.base.vocabulary, spec.hyper.max_length)

    async def take(
        self,
        kind: SessionCommandKind,
        seq: int,
        body: Body,
        *,
        tokens: Tokens = 0,
        prompt_tokens: Tokens = 0,
        sampler: str = "",
        saved: str = "",
        weights: Sequence[BlobFile] = (),
    ) -> dict[str, Any]:
        """Put a command on the log; the future of its answer. Raises ApiError."""
        deps, tenant, session_id = self.deps, self.caller.tenant, self.job.id
        content = encode_body(body)
        sha256 = hashlib.sha256(content).hexdigest()
        key = blob_key(tenant, f"{SESSIONS}/{session_id}", sha256)
        await within(deps.blobs.put(key, content, sha256=sha256), len(content))
        command = SessionCommand(
            seq=seq,
            kind=kind,
            body=BlobFile(name=kind, blob=key, sha256=sha256, bytes=len(content)),
            tokens=tokens,
            prompt_tokens=prompt_tokens,
            sampler=sampler,
            saved=saved,
            weights=tuple(weights),
        )
        with paused_without_credit():
            await deps.decide(self.caller, SESSION, TakeCommand(command=command), key=session_id)
        return {"request_id": future_id(session_id, command.name), "model_id": session_id}


async def _open(deps: JobDeps, caller: Principal, session_id: str) -> RunningSession:
    """Raises ApiError 404 where the tenant has no such session, 400 once it has ended."""
    job = await _find(deps, caller, session_id)
    if job.outcome is not None:
        raise ApiError(400, errors.ILLEGAL_STATE, ended_words(job), "model_id")
    return RunningSession(deps, caller, job)


async def _find(deps: JobDeps, caller: Principal, session_id: str) -> JobRow:
    job = await deps.views.first(JOBS, {"tenant": caller.tenant, "id": session_id})
    if job is None or job.spec.session is None:
        message = f"There is no model {session_id!r}. Create one with create_model."
        raise ApiError(404, errors.NOT_FOUND, message, "model_id")
    return job


async def _saved(
    deps: JobDeps, caller: Principal, path: str, field: str, kind: SavedKind
) -> tuple[SavedPath, SavedWeightsRow]:
    """Raises ApiError 400 for what is no such path, 404 where nothing is saved there."""
    parsed = parse_path(path, field, kind)
    row_id = parsed.row_id(deps.seal, caller.tenant)
    where = {"tenant": caller.tenant, "session_id": parsed.session_id, "id": row_id}
    row = await deps.views.first(SAVED_WEIGHTS, where)
    if row is None:
        message = f"There are no weights at {path!r}: they were not saved, or are erased."
        raise ApiError(404, errors.NOT_FOUND, message, field)
    return parsed, row


# --- the client
@router.get("/healthz")
async def sdk_health() -> dict[str, str]:
    """Answer that the API is there."""
    return {"status": "ok"}


@router.post("/client/config")
async def client_config() -> dict[str, Any]:
    """Say how the SDK is to send: in chunks that are taken, compressed."""
    return {
        "pjwt_auth_enabled": False,
        "credential_default_source": "api_key",
        "parallel_fwdbwd_chunks": True,
        "proto_compress_fwdbwd": True,
        "fwdbwd_max_chunk_len": ROWS_MAX,
        "fwdbwd_max_chunk_bytes_count": BODY_BYTES,
        "fwdbwd_dispatch_bytes_semaphore_size": IN_FLIGHT_BYTES,
        "sample_dispatch_bytes_semaphore_size": IN_FLIGHT_BYTES // 2,
        "sample_max_concurrent_requests": 200,
        "use_pyqwest_transport": False,
        "create_model_via_load_weights": False,
        "sample_use_retrieve_futures": False,
    }


@router.post("/client/dynamic_config")
async def client_dynamic_config() -> dict[str, Any]:
    """Say what may change while the SDK runs: nothing."""
    return {"refresh_interval_sec": 3_600, "sample_cancel_enabled": False}


@router.get("/get_server_capabilities")
async def server_capabilities(deps: WithJobDeps, caller: Caller) -> dict[str, Any]:
    """List the base models that the caller may train."""
    bases = await deps.views.page(BASES, {}, limit=BASES_MAX)
    allowed = caller.models
    return {
        "supported_models": [
            {
                "model_name": row.base.base_id,
                "max_context_length": row.base.context_length,
                "trainable": True,
                "sampleable": True,
            }
            for row in bases
            if allowed is None or row.base.base_id in allowed
        ]
    }


@router.post("/create_session")
async def create_client_session(_: ClientSessionRequest, deps: WithJobDeps) -> dict[str, Any]:
    """Begin: models that are created with the answer's id live as long as its heartbeats."""
    return {
        "type": "create_session",
        "session_id": deps.fresh(CLIENT),
        "warning_message": WARNING,
    }


@router.post("/session_heartbeat")
async def heartbeat(body: HeartbeatRequest, deps: WithJobDeps, caller: Caller) -> dict[str, Any]:
    """Keep the models of a client."""
    where = {"tenant": caller.tenant, "client": body.session_id}
    now_ms = deps.clock.now_ms()
    for row in await deps.views.page(SESSION_ROWS, where, limit=SESSIONS_MAX):
        last_seen_ms = max(row.opened_at, row.touched_at or 0)
        if row.closed_at is None and now_ms - last_seen_ms >= TOUCH_MS:
            await deps.decide(caller, SESSION, TouchSession(), key=row.id)
    return {"type": "session_heartbeat"}


@router.post("/telemetry")
async def telemetry() -> dict[str, str]:
    """Take what the SDK says of itself, and keep nothing of it."""
    return {"status": "accepted"}


async def _lane(deps: JobDeps, caller: Principal) -> Lane:
    tenant = await deps.views.first(TENANTS, {"id": caller.tenant})
    return "free" if tenant is None else tenant.plan


# --- the model
@router.post("/create_model")
async def create_model(
    body: CreateModelRequest, request: Request, deps: WithJobDeps, caller: Caller
) -> dict[str, Any]:
    """Submit a session. Its future says why it waits for its slots, and ends once it has begun."""
    lane, submissions = await _lane(deps, caller), request.app.state.submissions
    name = f"{body.session_id}/{body.model_seq_id}"
    with paused_without_credit():
        job = await create_session(deps, submissions, caller, body, lane, name)
    return {"request_id": future_id(job.id, BEGUN), "model_id": job.id}


@router.post("/get_info")
async def model_info(body: ModelRequest, deps: WithJobDeps, caller: Caller) -> dict[str, Any]:
    """Describe the model of a session."""
    spec = (await _find(deps, caller, body.model_id)).spec
    base = spec.base
    return {
        "type": "get_info",
        "model_id": body.model_id,
        "model_name": base.base_id,
        "is_lora": True,
        "lora_rank": spec.hyper.rank,
        "model_data": {
            "arch": base.family,
            "model_name": base.base_id,
            "tokenizer_id": base.source or base.base_id,
        },
    }


@router.post("/unload_model")
async def unload_model(body: ModelRequest, deps: WithJobDeps, caller: Caller) -> dict[str, Any]:
    """End a session: what was asked before is done, then its weights are saved and billed."""
    await _open(deps, caller, body.model_id)
    await deps.decide(caller, SESSION, EndSession(), key=body.model_id)
    return {"request_id": future_id(body.model_id, BEGUN), "model_id": body.model_id}


@router.post("/forward_backward", openapi_extra=PASS)
async def forward_backward(request: Request, deps: WithJobDeps, caller: Caller) -> dict[str, Any]:
    """Pass rows through the model, and add up gradients unless only the pass was asked for."""
    encoding = request.headers.get("content-encoding", "identity")
    asked = read_pass(decompressed(await request.body(), encoding))
    session = await _open(deps, caller, asked.session_id)
    body, tokens = pass_body(asked, session.limits)
    kind: SessionCommandKind = "forward" if asked.forward_only else "forward_backward"
    return await session.take(kind, asked.seq, body, tokens=tokens)


@router.post("/optim_step")
async def optim_step(body: StepRequest, deps: WithJobDeps, caller: Caller) -> dict[str, Any]:
    """Take a step of AdamW."""
    session = await _open(deps, caller, body.model_id)
    return await session.take("optim_step", body.seq_id, step_body(body))


# --- weights
@router.post("/save_weights")
async def save_weights(body: SaveRequest, deps: WithJobDeps, caller: Caller) -> dict[str, Any]:
    """Save weights and optimizer, to go on from."""
    return await _save(body, deps, caller, "save_state", WHOLE_STATE)


@router.post("/save_weights_for_sampler")
async def save_weights_for_sampler(
    body: SaveRequest, deps: WithJobDeps, caller: Caller
) -> dict[str, Any]:
    """Save weights, to sample from."""
    return await _save(body, deps, caller, "save_sampler", ADAPTER_ONLY)


async def _save(
    body: SaveRequest,
    deps: JobDeps,
    caller: Principal,
    command: SessionCommandKind,
    kind: SavedKind,
) -> dict[str, Any]:
    session = await _open(deps, caller, body.model_id)
    path = SavedPath(body.model_id, kind, body.path or f"{WITHOUT_NAME}{body.seq_id}")
    saved = path.row_id(deps.seal, caller.tenant)
    return await session.take(command, body.seq_id, SaveBody(path=str(path)), saved=saved)


@router.post("/load_weights")
async def load_weights(body: LoadRequest, deps: WithJobDeps, caller: Caller) -> dict[str, Any]:
    """Go on from saved weights."""
    session = await _open(deps, caller, body.model_id)
    path, row = await _saved(deps, caller, body.path, "path", WHOLE_STATE)
    _check_alike(session.job, await _find(deps, caller, path.session_id))
    command = LoadBody(path=body.path, optimizer=body.optimizer)
    return await session.take("load_state", body.seq_id, command, weights=row.files)


def _check_alike(own: JobRow, other: JobRow) -> None:
    """Raises ApiError 400 where the weights of a session do not fit another."""
    if (difference := first_difference(own.spec, other.spec)) is not None:
        name, mine, theirs = difference
        text = f"its {name} is {theirs}, and that of {own.id} is {mine}"
        raise invalid(text, "path", "invalid_weights")


@router.post("/weights_info")
async def weights_info(body: WeightsRequest, deps: WithJobDeps, caller: Caller) -> dict[str, Any]:
    """Describe saved weights."""
    path, _ = await _saved(deps, caller, body.tinker_path, "tinker_path", WHOLE_STATE)
    spec = (await _find(deps, caller, path.session_id)).spec
    lora = lora_like(spec)
    return {
        "base_model": spec.base.base_id,
        "is_lora": True,
        "lora_rank": lora.rank,
        "train_unembed": lora.train_unembed,
        "train_mlp": lora.train_mlp,
        "train_attn": lora.train_attn,
    }


# --- samples
@router.post("/create_sampling_session")
async def create_sampler(
    body: SamplerRequest, request: Request, deps: WithJobDeps, caller: Caller
) -> dict[str, Any]:
    """Begin to sample from saved weights or a base model, which may open a session for it."""
    own, like = f"{body.session_id}-{body.sampling_session_seq_id}", None
    if body.model_path is not None:
        path, _ = await _saved(deps, caller, body.model_path, "model_path", ADAPTER_ONLY)
        saved_by = await _find(deps, caller, path.session_id)
        if await takes_commands(deps, saved_by):
            return _sampling(Sampler(str(path), own))
        like = saved_by.spec
    elif body.base_model is None:
        raise invalid("give model_path or base_model", "model_path")
    lane, submissions = await _lane(deps, caller), request.app.state.submissions
    with paused_without_credit():
        session_id = await session_for(deps, submissions, caller, body, lane, like)
    return _sampling(Sampler(body.model_path or "", own, session_id))


def _sampling(sampler: Sampler) -> dict[str, Any]:
    return {"type": "create_sampling_session", "sampling_session_id": str(sampler)}


@router.get("/samplers/{sampler:path}")
async def sampler_info(sampler: str, deps: WithJobDeps, caller: Caller) -> dict[str, Any]:
    """Describe a sampler."""
    session_id, _ = await _sampled(deps, caller, read_sampler(sampler), "sampler")
    job = await _find(deps, caller, session_id)
    return {
        "sampler_id": sampler,
        "base_model": job.spec.base.base_id,
        "model_path": read_sampler(sampler).path or None,
    }


async def _sampled(
    deps: JobDeps, caller: Principal, sampler: Sampler, field: str
) -> tuple[str, tuple[BlobFile, ...]]:
    """The session that computes a sampler, and the files of its weights; none: the base model.

    Raises ApiError as `_saved` does.
    """
    if not sampler.path and sampler.session_id:
        return sampler.session_id, ()
    path, row = await _saved(deps, caller, sampler.path, field, ADAPTER_ONLY)
    return sampler.session_id or path.session_id, row.files


@router.post("/asample")
async def sample(body: SampleRequest, deps: WithJobDeps, caller: Caller) -> dict[str, Any]:
    """Sample sequences, or score a prompt."""
    asked = read_sampler(body.sampling_session_id)
    session_id, weights = await _sampled(deps, caller, asked, "sampling_session_id")
    session = await _open(deps, caller, session_id)
    sampler = hashlib.sha256(body.sampling_session_id.encode()).hexdigest()[:16]
    drawn = f"{sampler}:{asked.own}:{body.seq_id}"
    seed = int.from_bytes(hashlib.sha256(drawn.encode()).digest()[:4])
    command, prompt, most = sample_body(body, seed, session.limits)
    future = await session.take(
        "sample",
        body.seq_id,
        replace(command, of_base=not weights),
        tokens=prompt + most,
        prompt_tokens=prompt,
        sampler=sampler,
        weights=weights,
    )
    sequences = [f"{future['request_id']}/{number}" for number in range(body.num_samples)]
    return {**future, "sample_sequence_ids": sequences}


# --- answers
@router.post("/retrieve_future", response_class=Response)
async def retrieve_future(body: FutureRequest, deps: WithJobDeps, caller: Caller) -> Response:
    """Return the answer to a request, waiting a while for it; 408: ask again."""
    return await answer_of(deps, caller, body.request_id)
