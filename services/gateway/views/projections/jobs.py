"""`job` → jobs, their checkpoints, the messages of their event lists, limits in force."""

from collections.abc import Iterator
from typing import Any, TypeAlias, TypeGuard, assert_never

from schemas.admission import (
    AdmissionsReviewed,
    AnswersCharged,
    BudgetCounted,
    BudgetRemoved,
    BudgetSet,
    BudgetThresholdReached,
    SuspensionSet,
)
from schemas.anomaly import AnomalyRecorded
from schemas.dataset import FileRegistered
from schemas.envelope import Header, Rejected, Repeated
from schemas.erasure import JobsClosed, JobsErased
from schemas.ids import CHECKPOINT, derived_id
from schemas.integrations import MirrorReported
from schemas.job import (
    AttemptEnded,
    AttemptStarted,
    BaseBound,
    CheckpointRecorded,
    DatasetBound,
    Event,
    FileNoted,
    GateRunEnded,
    HoldTaken,
    JobEnded,
    JobSubmitted,
    LimitsSet,
    LookTaken,
    PhaseSet,
    PinsWanted,
    PlacementUnwanted,
    PlacementWanted,
    RegistrationWanted,
    UsageCounted,
    VerdictDue,
    VerdictRecorded,
    WaitNoted,
    WantedSet,
    WorkDescribed,
)
from schemas.serving import (
    ServingPoolRemoved,
    ServingPoolSet,
    ServingPoolStalled,
    ServingTermBegun,
    ServingTermDraining,
    ServingTermEnded,
    ServingTermUnwanted,
)
from schemas.sweep import (
    SweepCancelled,
    SweepEnded,
    SweepRungBegun,
    SweepRunSkipped,
    SweepSubmitted,
    SweepWaiting,
)
from schemas.training import TrainResult
from services.gateway.views.event_ids import history_id
from services.gateway.views.projections.messages import messages
from services.gateway.views.projections.sweeps import project_sweep, run_submitted
from services.gateway.views.tables.accounts import BUDGETS, LIMITS
from services.gateway.views.tables.jobs import (
    CHECKPOINTS,
    JOB_HISTORY,
    JOBS,
    BudgetHold,
    CheckpointRow,
    JobChangeRow,
    JobRow,
)
from services.gateway.views.todos import MIRROR_FILES, RESULTS, result_file_id, results_id
from tunery.runtime.verbs import Change, Done, Todo, Upsert

BudgetEvent: TypeAlias = BudgetSet | BudgetRemoved | BudgetCounted | BudgetThresholdReached

Moving: TypeAlias = (
    HoldTaken
    | DatasetBound
    | PlacementWanted
    | WantedSet
    | PhaseSet
    | WaitNoted
    | AttemptStarted
    | CheckpointRecorded
    | AttemptEnded
    | VerdictDue
    | VerdictRecorded
    | RegistrationWanted
)


def project_job(header: Header, event: Event) -> tuple[Change, ...]:
    changes = _project(header, event)
    jobs = (change for change in changes if _of_job(change))
    return (*changes, *(row for change in jobs for row in _history(header, change)))


def project_result_file(header: Header, file: FileRegistered) -> tuple[Change, ...]:
    """`dataset` → the result file of a job; ends the to-do row for writing it."""
    if file.job_id is None:
        return ()
    names = {result_file_id(header.key, file.job_id, kind): kind for kind in MIRROR_FILES}
    kind = names.get(file.file_id, RESULTS)
    job = _set(header, file.job_id, **{MIRROR_FILES.get(kind, "result_file"): file.file_id})
    return (job, *_history(header, job), Done(kind, results_id(header.key, file.job_id)))


def _history(header: Header, change: Upsert) -> Iterator[Upsert]:
    """Rows of the job's history: each changed column with its new value and time."""
    for field, value in change.values.items():
        yield JOB_HISTORY.insert(
            JobChangeRow(
                tenant=change.key["tenant"],
                job_id=change.key["id"],
                id=history_id(header.at, header.seq, field),
                at=header.at,
                field=field,
                value=value,
            )
        )


def _of_job(change: Change) -> TypeGuard[Upsert]:
    return isinstance(change, Upsert) and change.table == JOBS.name


def _project(header: Header, event: Event) -> tuple[Change, ...]:
    match event:
        case LimitsSet():
            if event.effective_at is not None and event.effective_at > header.at:
                return ()  # another event comes when it is in force
            plan = event.terms
            values = {"lane": plan.lane, "limits": plan.limits, "price_version": plan.price_version}
            return (LIMITS.update({"id": header.key}, **values),)
        case SuspensionSet():
            return (LIMITS.update({"id": header.key}, suspended=event.suspended),)
        case BudgetSet() | BudgetRemoved() | BudgetCounted() | BudgetThresholdReached():
            return project_budget(header, event)
        case (
            SweepSubmitted()
            | SweepWaiting()
            | SweepRunSkipped()
            | SweepRungBegun()
            | SweepCancelled()
            | SweepEnded()
        ):
            return project_sweep(header, event)
        case JobSubmitted():
            begun = run_submitted(header, event.spec.sweep_id)
            return (_submitted(header, event), *begun, *messages(header, event))
        case JobEnded():
            row = results_id(header.key, event.job_id)
            kinds = (RESULTS, *(kind for kind in event.integrations if kind in MIRROR_FILES))
            todos = [Todo(kind, row, header.key, header.tenant, event) for kind in kinds]
            return (_ended(header, event), *todos, *messages(header, event))
        case LookTaken() | AnomalyRecorded() | MirrorReported():
            return messages(header, event)
        case (
            FileNoted()
            | AdmissionsReviewed()
            | PinsWanted()
            | BaseBound()
            | WorkDescribed()
            | PlacementUnwanted()
            | UsageCounted()
            | AnswersCharged()
            | GateRunEnded()
            | ServingPoolSet()
            | ServingPoolRemoved()
            | ServingPoolStalled()
            | ServingTermBegun()
            | ServingTermDraining()
            | ServingTermUnwanted()
            | ServingTermEnded()
            | JobsClosed()
            | JobsErased()
            | Rejected()
            | Repeated()
        ):
            return ()
        case _:
            return (*_moved(header, event), *messages(header, event))


def _set(header: Header, job_id: str, **values: Any) -> Upsert:
    return JOBS.update({"tenant": header.key, "id": job_id}, **values)


def _submitted(header: Header, event: JobSubmitted) -> Change:
    return JOBS.insert(
        JobRow(
            tenant=header.key,
            id=event.job_id,
            sequence=header.seq,
            command_id=header.command_id,
            created_at=header.at,
            spec=event.spec,
            lane=event.lane,
            configuration=event.spec.configuration or None,
            wanted="run",
            phase="validating",
            submitted_by=header.actor,
        )
    )


def _ended(header: Header, event: JobEnded) -> Change:
    return _set(
        header,
        event.job_id,
        phase="done",
        reason=None,
        node_ids=(),
        outcome=event.outcome,
        failure=event.failure,
        model_id=event.model_id,
        finished_at=header.at,
        trained_tokens=event.trained_tokens,
        billable_gpu_ms=event.billable_gpu_ms,
        lost_gpu_ms=event.lost_gpu_ms,
        **_refunded(event),
        released_gpu_ms=event.released_gpu_ms,
    )


def _refunded(event: JobEnded) -> dict[str, Any]:
    """Return the costs of a job after a refund; a partial refund of its time keeps its tokens."""
    if event.refund is None:
        return {}
    if event.lost_gpu_ms < event.billable_gpu_ms:
        return {"micro_gpu_ms": event.micro_gpu_ms}
    return {"micro_gpu_ms": 0, "billed_tokens": 0}


def _moved(header: Header, event: Moving) -> tuple[Change, ...]:
    match event:
        case HoldTaken():
            hold = BudgetHold(tokens=event.tokens, estimate=event.estimate)
            return (_set(header, event.job_id, hold=hold, overage=event.overage),)
        case DatasetBound():
            return (_set(header, event.job_id, prepared=event.prepared),)
        case PlacementWanted():
            attempt, role = event.placement.attempt, event.placement.role
            trains = {"train_attempt": attempt} if role == "train" else {}
            return (_set(header, event.job_id, attempt=attempt, role=role, **trains),)
        case WantedSet():
            return (_set(header, event.job_id, wanted=event.wanted),)
        case PhaseSet():
            values = {"phase": event.phase, "reason": event.reason, "node_ids": event.node_ids}
            return (_set(header, event.job_id, **values),)
        case WaitNoted():
            return (_set(header, event.job_id, reason=event.reason),)
        case AttemptStarted():
            return _started(header, event)
        case CheckpointRecorded():
            return (
                _checkpoint(header, event),
                _set(header, event.job_id, trained_tokens=event.trained_tokens),
            )
        case AttemptEnded():
            totals: dict[str, Any] = {
                "billable_gpu_ms": event.job_billable_gpu_ms,
                "lost_gpu_ms": event.job_lost_gpu_ms,
                "micro_gpu_ms": event.job_micro_gpu_ms,
                "billed_tokens": event.job_tokens,
            }
            if event.role == "train":  # evaluations come after it
                totals["train_gpu_ms"] = event.job_billable_gpu_ms
            else:
                totals["eval_gpu_ms"] = event.end.used_gpu_ms
            result = event.end.result
            if isinstance(result, TrainResult) and result.variant is not None:
                totals |= {"variant": result.variant, "losses_ppm": result.losses_ppm}
            return (_set(header, event.job_id, **totals),)
        case VerdictDue():
            return (_set(header, event.job_id, scores=event.scores),)
        case VerdictRecorded():
            return (_set(header, event.job_id, gate=event.summary),)
        case RegistrationWanted():
            return (_set(header, event.job_id, lineage=event.terms.lineage),)
        case _:
            assert_never(event)


def _started(header: Header, event: AttemptStarted) -> tuple[Change, ...]:
    """Columns after a start. Only training has steps; an evaluation must not overwrite them."""
    if event.role != "train":
        return (_set(header, event.job_id, eval_started_at=header.at),)
    values = {
        "loaded_step": event.start.loaded_step,
        "total_steps": event.start.total_steps,
        "environment": dict(event.start.environment) or None,
    }
    return (_set(header, event.job_id, started_at=header.at, **values),)


def _checkpoint(header: Header, event: CheckpointRecorded) -> Change:
    saved = event.checkpoint
    name = derived_id(event.job_id, str(saved.attempt), str(saved.step), saved.manifest_sha256)
    return CHECKPOINTS.insert(
        CheckpointRow.of(
            event,
            saved,
            tenant=header.key,
            id=CHECKPOINT + name,
            sequence=header.seq,
            created_at=header.at,
            bytes=sum(file.bytes for file in saved.files),
        )
    )


def project_budget(header: Header, event: BudgetEvent) -> tuple[Change, ...]:
    """The row of a budget after an event of it. What is not limited is written as null."""
    match event:
        case BudgetSet(terms=terms):
            return (
                BUDGETS.update(
                    {"tenant": header.key, "id": terms.budget_id},
                    **BUDGETS.shared(terms),
                    set_at=header.at,
                ),
            )
        case BudgetRemoved(budget_id=budget_id):
            return (BUDGETS.delete({"tenant": header.key, "id": budget_id}),)
        case BudgetCounted(budget_id=budget_id):
            key = {"tenant": header.key, "id": budget_id}
            return (BUDGETS.update(key, month=event.month, use=event.use),)
        case BudgetThresholdReached(alert=alert):
            return (BUDGETS.update({"tenant": header.key, "id": alert.budget_id}, alert=alert),)
        case _:
            assert_never(event)
