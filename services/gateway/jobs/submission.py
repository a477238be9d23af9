"""Submits jobs: gathers facts, resolves the request, sends the command, awaits the decision."""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Final

from fastapi import Header
from msgspec import structs

from schemas import errors
from schemas.benchmark import Benchmark
from schemas.dataset import BaseTokens
from schemas.envelope import Idempotency
from schemas.gate import EVERY_BASE, GatePolicy
from schemas.ids import CHECKPOINT
from schemas.ids import JOB as JOB_PREFIX
from schemas.ids import MODEL as MODEL_PREFIX
from schemas.integrations import Integration
from schemas.job import SubmitJob
from schemas.model import Base
from schemas.submission import JobSpec
from schemas.topics import JOB
from schemas.units import Ms
from services.gateway.files.routes import find_file
from services.gateway.jobs.checkpoint_routes import find_checkpoint
from services.gateway.jobs.configuration import earlier_job
from services.gateway.jobs.deps import JobDeps
from services.gateway.jobs.domain.bodies import SEED_MAX, JobRequest
from services.gateway.jobs.domain.mixtures import references_of
from services.gateway.jobs.domain.node_choice import NodeKind
from services.gateway.jobs.domain.own_chats import continued_chat
from services.gateway.jobs.domain.requested import requested_settings
from services.gateway.jobs.domain.resolve import POOL, Facts, Resolved, canonical, resolve
from services.gateway.jobs.domain.starts import WEIGHTS, KnownStart, adapter_start
from services.gateway.jobs.domain.texts import as_text, sealed_texts, value_of
from services.gateway.jobs.own_counts import OwnCounts, is_usable
from services.gateway.jobs.standing import refusals, standing_of
from services.gateway.models.benchmark_routes import BENCHMARKS_MAX
from services.gateway.models.domain.names import checkpoint_name, slug
from services.gateway.models.routes import find_base, version_of_id
from services.gateway.views.ports import Buckets
from services.gateway.views.tables.accounts import MLFLOW, TENANTS, TRACKING_SERVERS
from services.gateway.views.tables.files import FileRow
from services.gateway.views.tables.jobs import JOBS, NODES, JobRow
from services.gateway.views.tables.models import BENCHMARKS, POLICIES
from services.gateway.web.deps import Deps, Principal
from services.gateway.web.domain.bodies import Body
from services.gateway.web.domain.errors import ApiError, invalid, refused
from services.gateway.wording import refusal_words
from tunery.mirrors.wandb_runs import is_installed as wandb_is_installed
from tunery.plan.estimate import corrected, estimate
from tunery.platform.seal.model_names import sealed_suffix

SUBMITTING_MAX: Final = 16
IDEMPOTENCY_KEY_MAX: Final = 255
LINE_CHARACTERS: Final = 16
SLOTS_END: Final = 2**31
BY_SLOTS: Final = Buckets("slots", 0, SLOTS_END, 1)
KINDS_MAX: Final = 1_024
UNDECIDED: Final = 500  # from this status on there is no decision
#: refusals that one client after the other repeats until something has ended
LIMITS: Final = frozenset({errors.CONCURRENCY_LIMIT, errors.HARD_LIMIT, errors.BUDGET_EXCEEDED})
REFUSED_MS: Final[Ms] = 60_000  # after a refusal that the decider has recorded
CHAT_TEXTS: Final = ("chat_template", "eot_tokens")  # of `JobSettings`
TENANTS_MAX: Final = 10_000  # the one that was refused longest ago is forgotten


@dataclass(frozen=True)
class Intent:
    """Headers that distinguish a repeated submission from a second one with the same body."""

    idempotency_key: str | None
    retried: bool


async def intent_of(
    idempotency_key: Annotated[
        str | None, Header(min_length=1, max_length=IDEMPOTENCY_KEY_MAX)
    ] = None,
    retry_count: Annotated[str, Header(alias="x-stainless-retry-count", max_length=8)] = "0",
) -> Intent:
    """The intent of a request."""
    return Intent(idempotency_key, retried=retry_count != "0")


@dataclass(frozen=True)
class Submitted:
    """A submitted job."""

    row: JobRow
    replayed: bool  # an earlier request with the same key had submitted it


class Submissions:
    """Submits jobs, at most SUBMITTING_MAX at a time.

    With more of them the statements of all would take turns, and each submission would take so long
    that a busy database would be reported as unavailable.
    """

    def __init__(self, deps: JobDeps) -> None:
        self._deps = deps
        self._turns = asyncio.Semaphore(SUBMITTING_MAX)
        self._counts = OwnCounts(deps)
        # until when submissions of a tenant are compared with the read models first
        self._refused: OrderedDict[str, Ms] = OrderedDict()

    async def submit(self, caller: Principal, body: JobRequest, intent: Intent) -> Submitted:
        """Submit a job, or return the one that this request repeats. Raises ApiError."""
        if _may_have_own_chat(body):
            # Reading rows with a tenant's template takes seconds, in which others need the turns.
            await self.gather(caller, body, "")
        async with self._turns:
            return await self._submit(caller, body, intent)

    async def resolve(
        self, caller: Principal, body: JobRequest, job_id: str | None = None
    ) -> Resolved:
        """Resolve a request without recording anything. Raises ApiError."""
        facts = await self.gather(caller, body, job_id or self._deps.fresh(JOB_PREFIX))
        resolved = resolve(body, facts)
        pace = await self._deps.past_jobs.pace(resolved.spec, resolved.tokens)
        return replace(resolved, spec=structs.replace(resolved.spec, pace=pace))

    async def refusal(self, caller: Principal, resolved: Resolved) -> ApiError | None:
        """Why a submission would be refused now, by the decider of submissions; None: it would not.

        Raises ApiError where there is no decision.
        """
        command = self._command(caller, self._deps.fresh(JOB_PREFIX), resolved, dry_run=True)
        try:
            async with self._turns:
                await self._deps.commands.decide(JOB, caller.tenant, command)
        except ApiError as refusal:
            if refusal.status >= UNDECIDED:
                raise
            return refusal
        return None

    def _command(
        self, caller: Principal, job_id: str, resolved: Resolved, *, dry_run: bool = False
    ) -> SubmitJob:
        return SubmitJob(
            job_id=job_id,
            spec=resolved.spec,
            tokens=resolved.tokens,
            cap=caller.cap,
            key_id=caller.key_id,
            dry_run=dry_run,
        )

    async def _submit(self, caller: Principal, body: JobRequest, intent: Intent) -> Submitted:
        job_id = self._deps.fresh(JOB_PREFIX)
        resolved = await self.resolve(caller, body, job_id)
        earlier = await self.earlier(caller, resolved.spec)
        if earlier is not None:
            resolved = replace(
                resolved, spec=structs.replace(resolved.spec, duplicate_of=earlier.id)
            )
        tenant, now = caller.tenant, self._deps.clock.monotonic_ms()
        repeats = intent.retried or intent.idempotency_key is not None
        if not repeats and now < self._refused.get(tenant, now):
            await self._refuse_unrecorded(caller, resolved)
        try:
            return await self.decide(caller, job_id, resolved, body, intent)
        except ApiError as refusal:
            if refusal.code in LIMITS:
                self._refused[tenant] = now + REFUSED_MS
                self._refused.move_to_end(tenant)
                if len(self._refused) > TENANTS_MAX:
                    self._refused.popitem(last=False)
            raise

    async def _refuse_unrecorded(self, caller: Principal, resolved: Resolved) -> None:
        """Refuse a submission of a tenant that still is at a limit. Raises ApiError.

        The decider has refused one a moment ago, and would record this refusal too, for ever. Where
        the read models are behind, or show no reason, the decider is asked again.
        """
        if resolved.tokens is None:
            return
        deps, spec = self._deps, resolved.spec
        standing = await standing_of(deps.views, caller.tenant, caller.key_id, deps.clock.now_ms())
        for problem in refusals(standing, spec, corrected(spec, estimate(spec, resolved.tokens))):
            if problem.code in LIMITS and problem.reason is not None:
                raise refused(problem.code, refusal_words(problem.reason), problem.param)

    async def decide(
        self, caller: Principal, job_id: str, resolved: Resolved, body: Body, intent: Intent
    ) -> Submitted:
        """Submit a resolved job, or return the one that this request repeats. Raises ApiError.

        body: what a repeated request is known by
        """
        deps = self._deps
        outcome = await deps.decide(
            caller,
            JOB,
            self._command(caller, job_id, resolved),
            idempotency=self.idempotency(caller, body, intent),
        )
        if outcome.repeated_of is not None:
            return Submitted(await self._first(caller, outcome.repeated_of), replayed=True)
        row = await deps.views.first(JOBS, {"tenant": caller.tenant, "id": job_id})
        if row is None:
            raise ApiError(404, errors.NOT_FOUND, f"Could not find fine tune: {job_id}", "id")
        return Submitted(row, replayed=False)

    async def earlier(self, caller: Principal, spec: JobSpec) -> JobRow | None:
        """An earlier job with the same configuration, best one that has succeeded.

        One that is submitted at the same moment may be missed: it is a warning, not a lock.
        """
        return await earlier_job(self._deps.views, caller.tenant, spec.configuration)

    async def gather(self, caller: Principal, body: JobRequest, job_id: str) -> Facts:
        """Everything that a request is resolved against."""
        deps, tenant_id = self._deps, caller.tenant
        mixture = await self._mixture(caller, references_of(body))
        tenant, start, base, training, held_out, nodes = await asyncio.gather(
            deps.views.first(TENANTS, {"id": tenant_id}),
            find_start(deps, tenant_id, body.model),
            find_base(deps, body.model),
            self._file(caller, body.training_file),
            self._file(caller, body.validation_file),
            self.nodes(),
        )
        base = base if start is None else start.base
        texts = sealed_texts(body, partial(deps.seal.seal, tenant_id))
        settings, problems = requested_settings(body)
        chat = settings.chat
        if start is not None and start.chat is not None:  # what is not named goes on
            chat = continued_chat(chat, start.chat, deps.seal.open)
            named = (start.chat.template, start.chat.eot_tokens)
            texts = {n: text for n, text in zip(CHAT_TEXTS, named, strict=True) if text} | texts
        counts: dict[str, BaseTokens] = {}
        if chat is not None and base is not None and not problems:
            files = {"training_file": training, "validation_file": held_out, **mixture}
            usable = {at: file for at, file in files.items() if file and is_usable(file)}
            reasoning = settings.own.reasoning
            counts = await self._counts.count(caller, base, chat, reasoning, usable)
        benchmarks, policy = await self.gate_terms(tenant_id, base)
        line = slug(body.suffix or "")
        return Facts(
            tenant_id=tenant_id,
            tenant=tenant,
            allowed_models=caller.models,
            base=base,
            training=training,
            held_out=held_out,
            nodes=nodes,
            book=None if tenant is None else await deps.prices.book(tenant.price_version),
            job_id=job_id,
            seed=int.from_bytes(deps.draw(4), "big") % (SEED_MAX + 1),
            suffix_hmac=deps.seal.hmac(tenant_id, f"line:{line}")[:LINE_CHARACTERS],
            sealed_suffix=sealed_suffix(deps.seal, tenant_id, line),
            start=start,
            texts=texts,
            chat_sha256=None if chat is None else chat.sha256,
            own_counts=counts,
            mixture=mixture,
            score_problem=deps.scores.problem_of(value_of(body, "grader")),
            benchmarks=benchmarks,
            policy=policy,
            integrations=self._integrations(caller, body),
            has_tracking_server=await self._has_tracking_server(caller, body),
            has_wandb=wandb_is_installed(),
        )

    def _integrations(self, caller: Principal, body: JobRequest) -> tuple[Integration, ...]:
        seal = self._deps.seal
        return tuple(
            Integration(
                kind=asked.type,
                settings=seal.seal(caller.tenant, as_text(asked.settings()), "integration"),
            )
            for asked in body.integrations or ()
        )

    async def _has_tracking_server(self, caller: Principal, body: JobRequest) -> bool:
        if not any(asked.type == MLFLOW for asked in body.integrations or ()):
            return False
        row = await self._deps.views.first(
            TRACKING_SERVERS, {"tenant": caller.tenant, "id": MLFLOW}
        )
        return row is not None

    async def gate_terms(
        self, tenant_id: str, base: Base | None
    ) -> tuple[dict[str, Benchmark], GatePolicy]:
        """All benchmarks by name, and what the gate of a tenant allows for a base model."""
        rows, policy = await asyncio.gather(
            self._deps.views.page(BENCHMARKS, {}, limit=BENCHMARKS_MAX),
            self._policy(tenant_id, base),
        )
        return {row.id: row.benchmark for row in rows}, policy

    async def _policy(self, tenant_id: str, base: Base | None) -> GatePolicy:
        """Return the gate policy of a tenant for a base model, else that for all of them."""
        names = (EVERY_BASE,) if base is None else (base.base_id, EVERY_BASE)
        where = {"tenant": tenant_id, "id": names}
        rows = await self._deps.views.page(POLICIES, where, limit=len(names))
        kept = {row.id: row.policy for row in rows}
        return next((kept[name] for name in names if name in kept), GatePolicy())

    async def _file(self, caller: Principal, reference: str | None) -> FileRow | None:
        return None if reference is None else await find_file(self._deps, caller, reference)

    async def _mixture(
        self, caller: Principal, references: Sequence[str]
    ) -> dict[str, FileRow | None]:
        """Files by the names that a request has for them."""
        rows = await asyncio.gather(*(self._file(caller, name) for name in references))
        return dict(zip(references, rows, strict=True))

    async def nodes(self) -> Sequence[NodeKind]:
        """Kinds of the pool's nodes: of a large pool there are many nodes and few kinds."""
        of_machine = ("state", "device", "accelerator", "memory_bytes", "spot")
        by = (*of_machine, "taints", "domain", "scores", "fabric")
        kinds = await self._deps.views.sums(
            NODES, {"pool": POOL}, BY_SLOTS, by=by, of=("slots",), limit=KINDS_MAX
        )
        return [
            NodeKind(
                is_alive=kind["state"] == "alive",
                device=kind["device"],
                accelerator=kind["accelerator"],
                slots=kind["bucket"],
                memory_bytes=kind["memory_bytes"],
                spot=kind["spot"],
                taints=tuple(kind["taints"]),
                domain=kind["domain"],
                scores=kind["scores"],
                fabric=kind["fabric"],
                nodes=kind["slots"] // max(1, kind["bucket"]),
            )
            for kind in kinds
        ]

    def idempotency(self, caller: Principal, body: Body, intent: Intent) -> Idempotency:
        """Key and body as HMACs with the tenant's key, so that the log reveals neither of them."""
        seal, key = self._deps.seal, intent.idempotency_key
        body_hmac = seal.hmac(caller.tenant, b"body:" + canonical(body))
        if key is not None:
            return Idempotency(key=seal.hmac(caller.tenant, f"key:{key}"), body=body_hmac)
        return Idempotency(key=body_hmac, body=body_hmac, by_body=True, retry=intent.retried)

    async def _first(self, caller: Principal, command_id: str) -> JobRow:
        """The job that the first request created. Raises ApiError 409 if that was refused."""
        where = {"tenant": caller.tenant, "command_id": command_id}
        row = await self._deps.views.first(JOBS, where)
        if row is None:
            message = (
                "The first request with this Idempotency-Key was refused. Correct the request and "
                "send it with a new key."
            )
            raise ApiError(409, errors.IDEMPOTENCY_CONFLICT, message, "Idempotency-Key")
        return row


def _may_have_own_chat(body: JobRequest) -> bool:
    own_model = body.model.startswith((MODEL_PREFIX, CHECKPOINT))
    return own_model or any(value_of(body, name) is not None for name in CHAT_TEXTS)


async def find_start(deps: Deps, tenant: str, name: str) -> KnownStart | None:
    """The tenant's version or checkpoint of this name; None: it has none."""
    if not name.startswith((MODEL_PREFIX, CHECKPOINT)):
        return None
    version = await version_of_id(deps, tenant, name)
    step = None
    if version is not None:
        start_id, job_id, files = version.id, version.lineage.job_id, version.files
    else:
        checkpoint = await find_checkpoint(deps, tenant, name)
        if checkpoint is None:
            return None
        start_id, job_id, files = checkpoint.id, checkpoint.job_id, checkpoint.files
        step = None if name == checkpoint.id else checkpoint.step
    if not any(file.name in WEIGHTS for file in files):
        raise invalid(
            f"{name} holds several configurations that took turns, and no one of them; begin with "
            "the version of its job",
            "model",
        )
    job = await deps.views.first(JOBS, {"tenant": tenant, "id": job_id})
    base = None if job is None else await find_base(deps, job.spec.base.base_id)
    if job is None or base is None:
        return None
    if step is not None:
        start_id = checkpoint_name(job.spec.model_id, step)
    quarantined = version is not None and version.quarantined
    start = adapter_start(start_id, files)
    return KnownStart(start, base, job.settled.hyper, quarantined, job.spec.chat)
