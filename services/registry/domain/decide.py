"""Decisions of `model`: which base a job may pin, which version may hold a stage."""

from typing import assert_never

from msgspec.structs import replace

from schemas import errors
from schemas.deployments import CountTraffic, Deploy
from schemas.envelope import Context, Rejected, Tick, reject
from schemas.erasure import EraseModels
from schemas.gate import (
    AddBenchmark,
    BenchmarkAdded,
    BenchmarkRemoved,
    GatePolicySet,
    GateRun,
    QuarantineDecision,
    QuarantineSet,
    RecordGateRun,
    RemoveBenchmark,
    SetGatePolicy,
    SetQuarantine,
)
from schemas.lifetime import KeepVersion, ReleaseVersion, RestoreVersion
from schemas.model import (
    AddBase,
    ApproveVersion,
    BaseAdded,
    BasePinned,
    BaseRefused,
    CheckpointShared,
    CheckpointUnshared,
    Command,
    DeleteVersion,
    Event,
    PinBase,
    Promote,
    RecordBaseBytes,
    RecordPublished,
    RegisterVersion,
    RollBack,
    SetApprovalRule,
    ShareCheckpoint,
    Stage,
    StageMoved,
    UnshareCheckpoint,
    VersionFailed,
    VersionGated,
    VersionPublished,
    VersionSubmitted,
)
from schemas.reasons import Failure, failing, refusing
from schemas.streams import GLOBAL
from services.registry.domain.deployments import count_traffic, decide_deployment, refuse_deployed
from services.registry.domain.erasure import erase_models, is_late, refuse_late
from services.registry.domain.lifetime import decide_lifetime
from services.registry.domain.state import (
    BENCHMARKS_MAX,
    EXCLUSIVE,
    POLICIES_MAX,
    SHARED_MAX,
    VERSIONS_MAX,
    Registry,
    TenantModels,
    former_of,
    holder_of,
)
from services.registry.domain.trust import decide_trust, refuse_stage, refuse_stale


def decide(state: Registry, command: Command, ctx: Context) -> tuple[Event, ...]:
    """Events that follow from a command.

    Refusals are `Rejected` for requests, `BaseRefused` or `VersionFailed` for jobs.
    """
    models = state.tenants.get(ctx.key, TenantModels())
    if is_late(models, command):
        return refuse_late(command, ctx)
    match command:
        case EraseModels():
            return erase_models(models)
        case AddBase():
            return _add_base(state, command, ctx)
        case PinBase():
            return (_pin_base(state, command),)
        case RegisterVersion():
            return _register(models, command)
        case RecordPublished():
            return _record_publication(models, command)
        case Promote():
            return _promote(state, models, command)
        case Deploy():
            return _deploy(state, models, command)
        case CountTraffic():
            return count_traffic(models, command)
        case RollBack():
            return _roll_back(state, models, command)
        case DeleteVersion() | RestoreVersion() | KeepVersion() | ReleaseVersion() | Tick():
            return decide_lifetime(models, command, ctx)
        case SetApprovalRule() | ApproveVersion() | RecordBaseBytes():
            return decide_trust(state, models, command, ctx)
        case ShareCheckpoint():
            return _share(models, command)
        case UnshareCheckpoint():
            return _unshare(models, command)
        case SetGatePolicy():
            return _set_policy(models, command)
        case SetQuarantine():
            return _set_quarantine(models, command.decision)
        case RecordGateRun():
            return _record_gate_run(models, command.run)
        case AddBenchmark():
            return _add_benchmark(state, command, ctx)
        case RemoveBenchmark():
            return _remove_benchmark(state, command, ctx)
        case _:
            assert_never(command)


def _add_base(state: Registry, command: AddBase, ctx: Context) -> tuple[Event, ...]:
    """Bytes under one id never change; where nodes find them may."""
    if ctx.key != GLOBAL:
        return reject(errors.MALFORMED, refusing("base_not_global"))
    base = command.base
    known = state.bases.get(base.base_id)
    if known == base:
        return ()
    if known is not None and known.sha256 != base.sha256:
        changed = refusing(
            "base_bytes", base_id=base.base_id, known_sha256=known.sha256, sha256=base.sha256
        )
        return reject(errors.BASE_CHANGED, changed, "id")
    return (BaseAdded(base=base),)


def _add_benchmark(state: Registry, command: AddBenchmark, ctx: Context) -> tuple[Event, ...]:
    """Bytes under one name never change, so that figures of different days are comparable."""
    if ctx.key != GLOBAL:
        return reject(errors.MALFORMED, refusing("benchmark_not_global"))
    added = command.benchmark
    known = state.benchmarks.get(added.name)
    if known is None:
        if len(state.benchmarks) >= BENCHMARKS_MAX:
            full = refusing("benchmarks_full", limit=BENCHMARKS_MAX)
            return reject(errors.HARD_LIMIT, full, "name")
        return (BenchmarkAdded(benchmark=added),)
    if known.sha256 == added.sha256:
        return ()
    changed = refusing(
        "benchmark_bytes", name=added.name, known_sha256=known.sha256, sha256=added.sha256
    )
    return reject(errors.ALREADY_EXISTS, changed, "name")


def _remove_benchmark(state: Registry, command: RemoveBenchmark, ctx: Context) -> tuple[Event, ...]:
    """Jobs that were submitted keep it; no policy that is in force may name it."""
    if ctx.key != GLOBAL:
        return reject(errors.MALFORMED, refusing("benchmark_not_global"))
    name = command.name
    if name not in state.benchmarks:
        return ()
    for models in state.tenants.values():
        for base_id, policy in models.policies.items():
            if name in policy.benchmarks:
                used = refusing("benchmark_in_policy", name=name, base_id=base_id)
                return reject(errors.ILLEGAL_STATE, used, "name")
    return (BenchmarkRemoved(name=name),)


def _pin_base(state: Registry, command: PinBase) -> BasePinned | BaseRefused:
    base = state.bases.get(command.base_id)
    if base is None:
        missing = failing("base_missing", base_id=command.base_id)
        failure = Failure(code=errors.UNKNOWN_BASE, reason=missing)
        return BaseRefused(job_id=command.job_id, failure=failure)
    now = state.drifted.get(command.base_id)
    if now is not None and now == command.base_sha256:  # the gate judges what is there
        return BasePinned(job_id=command.job_id, base=replace(base, sha256=now))
    if base.sha256 != command.base_sha256:
        differs = failing(
            "base_differs",
            base_id=command.base_id,
            sha256=base.sha256,
            job_sha256=command.base_sha256,
        )
        failure = Failure(code=errors.BASE_CHANGED, reason=differs)
        return BaseRefused(job_id=command.job_id, failure=failure)
    return BasePinned(job_id=command.job_id, base=base)


def _register(models: TenantModels, command: RegisterVersion) -> tuple[Event, ...]:
    model_id, job_id = command.terms.model_id, command.terms.lineage.job_id
    deleted = models.deleted.get(model_id)
    known = models.versions.get(model_id) if deleted is None else deleted.version
    if known is not None:
        if known.terms.lineage.job_id == job_id:
            return ()
        exists = failing("version_exists", model_id=model_id, job_id=known.terms.lineage.job_id)
        failure = Failure(code=errors.ALREADY_EXISTS, reason=exists)
        return (VersionFailed(model_id=model_id, job_id=job_id, failure=failure),)
    if len(models.versions) >= VERSIONS_MAX:
        full = failing("versions_at_most", limit=VERSIONS_MAX)
        failure = Failure(code=errors.ILLEGAL_STATE, reason=full)
        return (VersionFailed(model_id=model_id, job_id=job_id, failure=failure),)
    return (VersionSubmitted(terms=command.terms, adapter=command.adapter),)


def _record_publication(models: TenantModels, command: RecordPublished) -> tuple[Event, ...]:
    """Record that a version is published, or that it failed; only the first report counts."""
    version = models.versions.get(command.model_id)
    if version is None or version.published:
        return ()
    if command.failure is not None or not command.files:
        empty = Failure(code=errors.PLATFORM, reason=failing("adapter_empty"))
        failure = command.failure or empty
        job_id = version.terms.lineage.job_id
        return (VersionFailed(model_id=command.model_id, job_id=job_id, failure=failure),)
    return (
        VersionPublished(
            terms=version.terms,
            files=command.files,
            quarantined=version.terms.lineage.verdict == "block",
        ),
    )


def _promote(state: Registry, models: TenantModels, command: Promote) -> tuple[Event, ...]:
    version = models.versions.get(command.model_id)
    if version is None:
        return _unknown(command.model_id)
    if not version.published:
        return _publishing(command.model_id)
    if version.quarantined and command.stage != "archived":
        blocked = refusing("model_quarantined", model_id=command.model_id)
        return reject(errors.ILLEGAL_STATE, blocked, "model")
    if command.stage == "archived" and (refused := refuse_deployed(models, command.model_id)):
        return refused
    if refused := refuse_stage(state, models, version, command.stage):
        return refused
    exclusive = command.stage in EXCLUSIVE
    current = holder_of(models, version.terms.series, command.stage).model_id if exclusive else None
    if command.expected != current:
        return _conflict(command.stage, current, command.expected)
    if version.stage == command.stage:
        return ()
    return (
        StageMoved(
            model_id=command.model_id,
            series=version.terms.series,
            stage=command.stage,
            replaced=current,
            by="promotion",
        ),
    )


def _deploy(state: Registry, models: TenantModels, command: Deploy) -> tuple[Event, ...]:
    wanted = command.deployment
    version = models.versions.get(wanted.model_id)
    if version is None:
        return _unknown(wanted.model_id)
    if version.stage == "archived":
        archived = refusing("model_archived", model_id=wanted.model_id)
        return reject(errors.ILLEGAL_STATE, archived, "model")
    wanted = replace(wanted, series=version.terms.series)
    moved: tuple[Event, ...] = ()
    if holder_of(models, wanted.series, wanted.stage).model_id != wanted.model_id:
        promote = Promote(model_id=wanted.model_id, stage=wanted.stage, expected=command.expected)
        moved = _promote(state, models, promote)
        if isinstance(moved[0], Rejected):
            return moved
    return decide_deployment(state, models, replace(command, deployment=wanted), moved)


def _set_policy(models: TenantModels, command: SetGatePolicy) -> tuple[Event, ...]:
    known = models.policies.get(command.base_id)
    if known == command.policy:
        return ()
    if known is None and len(models.policies) >= POLICIES_MAX:
        return reject(errors.ILLEGAL_STATE, refusing("policies_at_most", limit=POLICIES_MAX))
    return (GatePolicySet(base_id=command.base_id, policy=command.policy),)


def _set_quarantine(models: TenantModels, decision: QuarantineDecision) -> tuple[Event, ...]:
    """Put a version into quarantine, or take it out; an unusable one stays there.

    A person may want to keep there what the gate has put there: later verdicts do not release it.
    """
    model_id, version = decision.model_id, models.versions.get(decision.model_id)
    if version is None:
        return _unknown(model_id)
    if not version.published:
        return _publishing(model_id)
    if (version.quarantined, version.held_back) == (decision.quarantined, decision.quarantined):
        return ()
    if version.unusable and not decision.quarantined:
        broken = refusing("model_unusable", model_id=model_id)
        return reject(errors.ILLEGAL_STATE, broken, "model")
    if decision.quarantined and version.stage in EXCLUSIVE:
        holds = refusing("model_in_stage", model_id=model_id, stage=version.stage)
        return reject(errors.ILLEGAL_STATE, holds, "model")
    if decision.quarantined and (refused := refuse_deployed(models, model_id)):
        return refused
    return (QuarantineSet(decision=decision),)


def _record_gate_run(models: TenantModels, run: GateRun) -> tuple[Event, ...]:
    """The newest verdict holds; but what a person put into quarantine stays there.

    A version in a stage that is blocked now keeps the stage until people decide. One that is not
    published has only the verdict that it was submitted with, which its publication goes by.
    """
    version = models.versions.get(run.model_id)
    if version is None or not version.published:
        missing = failing(
            "start_deleted" if version is None else "start_unpublished", model_id=run.model_id
        )
        failure = Failure(code=errors.UNKNOWN_BASE, reason=missing)
        return (VersionFailed(model_id=run.model_id, job_id=run.job_id, failure=failure),)
    if version.run is not None and version.run.job_id == run.job_id:
        return ()
    blocked = run.verdict == "block" or version.held_back
    return (VersionGated(run=run, quarantined=blocked, stage=version.stage),)


def _roll_back(state: Registry, models: TenantModels, command: RollBack) -> tuple[Event, ...]:
    if command.stage not in EXCLUSIVE:
        return reject(errors.ILLEGAL_STATE, refusing("stage_permanent"), "stage")
    current = holder_of(models, command.series, command.stage).model_id
    if current is None or current != command.expected:
        elsewhere = refusing("stage_not_held", stage=command.stage, expected=command.expected)
        return reject(errors.STAGE_CONFLICT, elsewhere, "stage")
    former = former_of(models, command.series, command.stage)
    if former is None:
        alone = refusing("stage_without_former", stage=command.stage)
        return reject(errors.ILLEGAL_STATE, alone, "stage")
    if refused := refuse_stale(state, models.versions[former]):
        return refused
    return (
        StageMoved(
            model_id=former,
            series=command.series,
            stage=command.stage,
            replaced=current,
            by="rollback",
        ),
    )


def _conflict(stage: Stage, current: str | None, expected: str | None) -> tuple[Rejected, ...]:
    if current is None:
        reason = refusing("stage_free", stage=stage, expected=expected or "")
    elif expected is None:
        reason = refusing("stage_taken", stage=stage, holder=current)
    else:
        reason = refusing("stage_moved", stage=stage, holder=current, expected=expected)
    return reject(errors.STAGE_CONFLICT, reason, "expected")


def _unknown(model_id: str) -> tuple[Rejected, ...]:
    return reject(errors.NOT_FOUND, refusing("model_missing", model_id=model_id), "model")


def _publishing(model_id: str) -> tuple[Rejected, ...]:
    return reject(errors.ILLEGAL_STATE, refusing("model_publishing", model_id=model_id), "model")


def _share(models: TenantModels, command: ShareCheckpoint) -> tuple[Event, ...]:
    checkpoint = command.checkpoint_id
    permitted = {
        permission.share.project_id
        for permission in models.shared.values()
        if permission.checkpoint_id == checkpoint
    }
    new = {share.project_id: share for share in command.shares if share.project_id not in permitted}
    if len(models.shared) + len(new) > SHARED_MAX:
        return reject(errors.ILLEGAL_STATE, refusing("permissions_at_most", limit=SHARED_MAX))
    return tuple(CheckpointShared(checkpoint_id=checkpoint, share=share) for share in new.values())


def _unshare(models: TenantModels, command: UnshareCheckpoint) -> tuple[Event, ...]:
    known = models.shared.get(command.permission_id)
    if known is None:
        missing = refusing("permission_missing", permission_id=command.permission_id)
        return reject(errors.NOT_FOUND, missing, "permission_id")
    return (CheckpointUnshared(checkpoint_id=known.checkpoint_id, share=known.share),)
