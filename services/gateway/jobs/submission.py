"""Submitting a job, and estimating one without submitting it."""

import asyncio
from dataclasses import dataclass
from typing import Annotated, Final

import msgspec
from fastapi import APIRouter, Depends, Header, Response

from schemas import errors
from schemas.dataset import BaseTokens
from schemas.envelope import Idempotency
from schemas.ids import JOB as JOB_PREFIX
from schemas.job import JobSpec, Price, SubmitJob
from schemas.model import Base
from schemas.topics import JOB
from schemas.training import Device
from services.gateway.accounts.tables import TENANTS, TenantRow
from services.gateway.files.routes import find_file
from services.gateway.files.tables import FileRow
from services.gateway.jobs import resolve as submission
from services.gateway.jobs.bodies import SEED_MAX, JobRequest
from services.gateway.jobs.cost_responses import (
    EstimateResponse,
    NoEstimateResponse,
    estimate_response,
    no_estimate_response,
)
from services.gateway.jobs.responses import JobResponse
from services.gateway.jobs.routes import find, shown
from services.gateway.jobs.tables import JOBS, NODES, JobRow
from services.gateway.models.tables import BASES
from services.gateway.web.deps import Caller, Deps, Principal, WithDeps
from services.gateway.web.errors import FORBIDDEN, ApiError
from tunery.plan.estimate import estimate
from tunery.runtime.store.abstract import CommandResult

IDEMPOTENCY_KEY_MAX: Final = 255
LINE_CHARACTERS: Final = 16
NODES_MAX: Final = 1_000
NOT_VALIDATED: Final = "train_file_not_validated"
router = APIRouter(tags=["fine-tuning"])


@dataclass
class Intent:
    """What tells one submission from another that looks the same."""

    idempotency_key: Annotated[str | None, Header(min_length=1, max_length=IDEMPOTENCY_KEY_MAX)] = (
        None
    )
    retry_count: Annotated[str, Header(alias="x-stainless-retry-count", max_length=8)] = "0"

    @property
    def retried(self) -> bool:
        return self.retry_count != "0"


WithIntent = Annotated[Intent, Depends()]


@dataclass(frozen=True)
class Resolved:
    """A request with everything it names looked up."""

    spec: JobSpec
    tokens: BaseTokens | None


# before the routes with {job_id}: `estimate` would be taken for one
@router.post("/v1/fine_tuning/jobs/estimate")
async def estimate_job(
    body: JobRequest, deps: WithDeps, caller: Caller
) -> EstimateResponse | NoEstimateResponse:
    """The same body as a submission; nothing is recorded."""
    found = await _resolve(deps, caller, body, deps.fresh(JOB_PREFIX))
    spec, tokens = found.spec, found.tokens
    if tokens is None:
        return no_estimate_response(spec, NOT_VALIDATED)
    figures = estimate(spec, tokens)
    starts_at = await deps.forecasts.start_of_new(spec.slots)
    return estimate_response(spec, figures, starts_at)


@router.post("/v1/fine_tuning/jobs")
async def create_job(
    body: JobRequest, response: Response, deps: WithDeps, caller: Caller, intent: WithIntent
) -> JobResponse | EstimateResponse | NoEstimateResponse:
    """Returns when the decision is in the read model. The same intent twice is one job."""
    if body.dry_run:
        return await estimate_job(body, deps, caller)
    return await shown(deps, await submitted(body, response, deps, caller, intent))


async def submitted(
    body: JobRequest, response: Response, deps: Deps, caller: Principal, intent: Intent
) -> JobRow:
    """The job of this intent, new or not; a header tells which.

    Only so many at once: a crowd that takes turns statement by statement would all be so slow that
    a busy database looks like one that is away.
    """
    async with deps.submitting:
        return await _submitted(body, response, deps, caller, intent)


async def _submitted(
    body: JobRequest, response: Response, deps: Deps, caller: Principal, intent: Intent
) -> JobRow:
    job_id = deps.fresh(JOB_PREFIX)
    found = await _resolve(deps, caller, body, job_id)
    outcome = await deps.commands.decide(
        JOB,
        caller.tenant,
        SubmitJob(job_id=job_id, spec=found.spec, tokens=found.tokens, cap=caller.cap),
        idempotency=idempotency(deps, caller, body, intent),
        actor=deps.seal.seal(caller.tenant, caller.key_id),
    )
    if outcome.repeated_of is None:
        return await find(deps, caller, job_id)
    response.headers["idempotent-replayed"] = "true"
    return await _first(deps, caller, outcome)


def idempotency(deps: Deps, caller: Principal, body: JobRequest, intent: Intent) -> Idempotency:
    """HMACs under the tenant's key: the log tells nothing about either."""
    key = intent.idempotency_key
    content = submission.canonical(body)
    body_hmac = deps.seal.hmac(caller.tenant, b"body:" + content)
    if key is not None:
        return Idempotency(key=deps.seal.hmac(caller.tenant, f"key:{key}"), body=body_hmac)
    return Idempotency(key=body_hmac, body=body_hmac, by_body=True, retry=intent.retried)


async def _first(deps: Deps, caller: Principal, outcome: CommandResult) -> JobRow:
    """The job that the first command of this intent made. Raises its refusal again, as 409."""
    command_id = outcome.repeated_of
    row = await deps.views.one(JOBS, {"tenant": caller.tenant, "command_id": command_id})
    if row is None:
        message = (
            "The first request with this Idempotency-Key was refused. Correct the request and "
            "send it with a new key."
        )
        raise ApiError(409, errors.IDEMPOTENCY_CONFLICT, message, "Idempotency-Key")
    return row


async def _resolve(deps: Deps, caller: Principal, body: JobRequest, job_id: str) -> Resolved:
    """Raises ApiError with what is wrong with the request, or with what it names."""
    tenant, base, training, held_out, device = await asyncio.gather(
        deps.views.one(TENANTS, {"id": caller.tenant}),
        known_base(deps, body.model),
        _find_input(deps, caller, body.training_file),
        _find_input(deps, caller, body.validation_file),
        _device(deps),
    )
    if tenant is None:
        message = f"Tenant {caller.tenant!r} does not exist. Create it with POST /v1/tenants."
        raise ApiError(404, errors.NOT_FOUND, message)
    if caller.models is not None and body.model not in caller.models:
        message = f"This key may train {', '.join(sorted(caller.models))}, not {body.model!r}."
        raise ApiError(403, FORBIDDEN, message, "model")
    wishes = submission.check(body, base)
    if base is None:
        raise submission.unknown_model(body.model)
    training = submission.check_file(training, body.training_file, "training_file")
    submission.check_split(wishes, training)
    if body.validation_file is not None:
        held_out = submission.check_file(held_out, body.validation_file, "validation_file")
        submission.check_split(wishes, held_out)
    body = submission.with_files(body, training, held_out)
    seed = body.seed
    if seed is None:
        seed = int.from_bytes(deps.draw(4), "big") % (SEED_MAX + 1)
    tokens = submission.tokens_of(training, base)
    minted = _minted(deps, caller, body, base, job_id, seed)
    price = _price(deps, tenant)
    spec = submission.build_spec(body, wishes, base, tokens, price, device, minted)
    return Resolved(spec, tokens)


def _minted(
    deps: Deps, caller: Principal, body: JobRequest, base: Base, job_id: str, seed: int
) -> submission.Minted:
    seal, tenant = deps.seal, caller.tenant
    suffix = submission.slug(body.suffix or "")
    return submission.Minted(
        job_id=job_id,
        tenant=tenant,
        seed=seed,
        suffix=None if body.suffix is None else seal.seal(tenant, body.suffix),
        metadata=None
        if body.metadata is None
        else seal.seal(tenant, msgspec.json.encode(body.metadata, order="sorted").decode()),
        series=f"{base.base_id}/{seal.hmac(tenant, f'line:{suffix}')[:LINE_CHARACTERS]}",
    )


async def known_base(deps: Deps, name: str) -> Base | None:
    row = await deps.views.one(BASES, {"id": name})
    return None if row is None else row.base


async def _find_input(
    deps: Deps, caller: Principal, reference: str | None
) -> submission.InputFile | None:
    row = None if reference is None else await find_file(deps, caller, reference)
    return None if row is None else _input_file(row)


def _input_file(row: FileRow) -> submission.InputFile:
    return submission.InputFile(
        id=row.id,
        purpose=row.purpose,
        status=row.status,
        validation=row.validation,
    )


def _price(deps: Deps, tenant: TenantRow) -> Price:
    book = deps.prices.book(tenant.price_version)
    if book is None:
        message = (
            f"The price book {tenant.price_version!r} of this tenant is not installed here. "
            "Tell the operator: put its file into the folder of price books."
        )
        raise ApiError(503, "price_book_missing", message, headers={"retry-after": "60"})
    return book.price(tenant.plan)


async def _device(deps: Deps) -> Device:
    """What the pool's live nodes have, else those it had last: accelerators where there is one."""
    nodes = await deps.views.page(NODES, {"pool": submission.POOL}, limit=NODES_MAX)
    nodes = [node for node in nodes if node.state == "alive"] or nodes
    return "cuda" if any(node.device == "cuda" for node in nodes) else "cpu"
