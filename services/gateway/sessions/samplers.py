"""Sampling clients of the SDK, and the session that computes what each asks for.

Saved weights are sampled from by the session that has saved them, while it is open. Otherwise, and
for base models, it is another open session of the same client, or a new one.
"""

import asyncio
from typing import Any, Final, NamedTuple

from schemas import errors
from schemas.account import Lane
from schemas.submission import JobSpec
from services.gateway.deployments.serving import check_key
from services.gateway.jobs.deps import JobDeps
from services.gateway.jobs.submission import Submissions
from services.gateway.models.routes import find_base
from services.gateway.sessions.bodies import CreateModelRequest, LoraBody, SamplerRequest
from services.gateway.sessions.creation import ATTENTION, MLP, create_session
from services.gateway.views.tables.jobs import JOBS, JobRow
from services.gateway.views.tables.sessions import SESSIONS
from services.gateway.web.deps import Principal
from services.gateway.web.domain.errors import ApiError, unavailable

SESSIONS_MAX: Final = 100  # of one client
OPEN_S_MAX: Final = 15.0  # a new session takes commands within this time
LOOK_S: Final = 0.05


class Sampler(NamedTuple):
    """A sampling client. As text it is the `sampling_session_id` that the SDK sends."""

    path: str  # of the saved weights; empty: the base model
    own: str  # its part of the name, which tells it from others of the same weights
    session_id: str = ""  # the session that computes it; empty: that of the path

    def __str__(self) -> str:
        computed_by = f"@{self.session_id}" if self.session_id else ""
        return f"{self.path}#{self.own}{computed_by}"


def read_sampler(name: str) -> Sampler:
    """Return the sampling client of a name."""
    path, _, rest = name.partition("#")
    own, _, session_id = rest.partition("@")
    return Sampler(path, own, session_id)


async def session_for(
    deps: JobDeps,
    submissions: Submissions,
    caller: Principal,
    asked: SamplerRequest,
    lane: Lane,
    like: JobSpec | None,
) -> str:
    """Return the id of an open session of this client that can compute a sampler, or of a new one.

    like: that of the session that saved the weights; None: the base model is asked for
    Raises ApiError.
    """
    name = asked.base_model if like is None else like.base.base_id
    base = None if name is None else await find_base(deps, name)
    if base is not None and like is not None and base.sha256 != like.base.sha256:
        message = f"The files of {name} are not those that these weights were trained on."
        raise ApiError(409, errors.BASE_CHANGED, message, "model_path")
    if base is not None:
        check_key(caller, base.base_id)
    where = {"tenant": caller.tenant, "client": asked.session_id}
    for row in await deps.views.page(SESSIONS, where, limit=SESSIONS_MAX):
        job = await deps.views.first(JOBS, {"tenant": caller.tenant, "id": row.id})
        if base is None or job is None or job.spec.base.sha256 != base.sha256:
            continue
        is_alike = like is None or first_difference(job.spec, like) is None
        if is_alike and await takes_commands(deps, job):
            return row.id
    body = CreateModelRequest(
        session_id=asked.session_id,
        model_seq_id=asked.sampling_session_seq_id,
        base_model=name or "",
        lora_config=LoraBody(rank=1) if like is None else lora_like(like),
        user_metadata={} if like is None else {"tunery_max_length": like.hyper.max_length},
    )
    intent = f"{asked.session_id}/sampler-{asked.sampling_session_seq_id}"
    created = await create_session(deps, submissions, caller, body, lane, intent)
    await _opened(deps, caller.tenant, created.id)
    return created.id


async def takes_commands(deps: JobDeps, job: JobRow) -> bool:
    """Return whether a session has not ended, and is not ending."""
    row = await deps.views.first(SESSIONS, {"tenant": job.tenant, "id": job.id})
    return job.outcome is None and row is not None and row.why is None


def lora_like(spec: JobSpec) -> LoraBody:
    """Return the adapter of a session as the SDK describes it."""
    layers = set(spec.hyper.target_modules or (*ATTENTION, *MLP))
    return LoraBody(
        rank=spec.hyper.rank,
        train_unembed=False,
        train_mlp=layers.issuperset(MLP),
        train_attn=layers.issuperset(ATTENTION),
    )


def first_difference(own: JobSpec, other: JobSpec) -> tuple[str, Any, Any] | None:
    """Return in what the weights of a session differ from those of another; None: they fit."""
    for name, mine, theirs in (
        ("base model", own.base.sha256, other.base.sha256),
        ("rank", own.hyper.rank, other.hyper.rank),
        ("layers", own.hyper.target_modules, other.hyper.target_modules),
    ):
        if mine != theirs:
            return name, mine, theirs
    return None


async def _opened(deps: JobDeps, tenant: str, session_id: str) -> None:
    """Wait until a new session takes commands. Raises ApiError 503."""
    until = asyncio.get_running_loop().time() + OPEN_S_MAX
    while await deps.views.first(SESSIONS, {"tenant": tenant, "id": session_id}) is None:
        if asyncio.get_running_loop().time() > until:
            raise unavailable("The session", 1)
        await asyncio.sleep(LOOK_S)
