"""Turns events of the job journal into the messages of the job's event list."""

from collections.abc import Mapping
from typing import Any, Final, assert_never

from msgspec.structs import asdict

from schemas.anomaly import Anomaly, AnomalyRecorded
from schemas.envelope import Header
from schemas.integrations import MirrorCause, MirrorReported
from schemas.job import (
    AttemptEnded,
    AttemptStarted,
    CheckpointRecorded,
    HoldTaken,
    JobEnded,
    JobSubmitted,
    LookTaken,
    PlacementWanted,
    VerdictRecorded,
    WantedSet,
)
from schemas.model import ScoreSummary
from schemas.sealed import Sealed
from schemas.training import AttemptOutcome
from schemas.units import PPM
from services.gateway.verdict_reasons import reasons_words
from services.gateway.views.event_ids import journal_event_id
from services.gateway.views.tables.jobs import JOB_EVENTS, EventLevel, JobEventRow
from services.gateway.wording import failure_words, own_data_words, skip_words
from tunery.gate.outcomes import own_task_of, skills_of
from tunery.runtime.verbs import Change

WANTED = {"run": "Job resumed", "paused": "Pause requested", "cancelled": "Cancellation requested"}
NO_WANDB: Final = (
    "W&B's package is not installed at this server, so the job gets no offline run: its operator "
    "installs tunery's extra `mirrors`. `tunery job mirror --wandb-offline` writes one elsewhere"
)
MIRROR_CAUSES: Final[Mapping[MirrorCause, str]] = {
    "unreachable": "the server does not answer",
    "refused": "the server refuses it",
    "address_not_allowed": "the address of the server is not a public one over https",
    "no_server": "the tenant has no server; `tunery mlflow set URL` names one",
    "failed": "what the server answers is not understood",
}
SAME_FILE = (
    "The validation file is the training file: its loss says what the model has learnt by heart, "
    "not how it answers other rows. Leave it out, and a part of the rows is kept for validation"
)
ENDINGS: dict[AttemptOutcome, str] = {
    "succeeded": "",
    "preempted": "Attempt {n} was stopped before its end; its last checkpoint is kept",
    "lost": "Attempt {n} lost its machine; the job continues, free, from its last checkpoint",
    "failed": "Attempt {n} failed: {cause}",
    "not_started": "Attempt {n} ended before it started",
}


def messages(header: Header, event: Any) -> tuple[Change, ...]:
    """Rows of the job's event list; none for events that users do not need to see."""
    match event:
        case JobSubmitted():
            return _submitted(header, event)
        case HoldTaken():
            hold = event.estimate.hold_gpu_ms
            text = f"At most {hold / 3_600_000:.2f} GPU-hours are held for this job until it ends"
            return (job_event_row(header, event.job_id, "held", text, data={"hold_gpu_ms": hold}),)
        case PlacementWanted():
            return (_placed(header, event),)
        case AttemptStarted():
            return _started(header, event)
        case CheckpointRecorded():
            step = event.checkpoint.step
            text = f"Checkpoint created at step {step}"
            return (job_event_row(header, event.job_id, "checkpoint", text, data={"step": step}),)
        case WantedSet():
            return (job_event_row(header, event.job_id, "wanted", WANTED[event.wanted]),)
        case AnomalyRecorded():
            data = asdict(event.anomaly)
            text = anomaly_words(event.anomaly)
            row = job_event_row(header, event.job_id, "anomaly", text, level="warn", data=data)
            return (row,)
        case AttemptEnded():
            return _attempt_ended(header, event)
        case LookTaken():
            asked = sum(compared.items for compared in event.comparisons if not compared.model_id)
            text = f"Look {event.look} of the gate, at {asked:,} items: undecided, more are asked"
            data = {"look": event.look, "items": asked}
            return (job_event_row(header, event.job_id, "verdict", text, data=data),)
        case VerdictRecorded():
            return (_verdict(header, event.job_id, event.summary),)
        case JobEnded():
            return _ended(header, event)
        case MirrorReported():
            return (_mirrored(header, event),)
        case _:
            return ()


def job_event_row(
    header: Header,
    job_id: str,
    rank: str,
    message: str,
    *,
    level: EventLevel = "info",
    data: dict[str, Any] | None = None,
    sealed: Sealed | None = None,
) -> Change:
    """A message in the event list of a job. `rank`: its order among those of one record."""
    return JOB_EVENTS.insert(
        JobEventRow(
            tenant=header.key,
            job_id=job_id,
            id=journal_event_id(header.at, header.seq, rank),
            at=header.at,
            level=level,
            kind="message",
            message=message,
            data=data,
            sealed=sealed,
        )
    )


def _submitted(header: Header, event: JobSubmitted) -> tuple[Change, ...]:
    if event.spec.evaluation is not None:
        created = f"Created job: {event.job_id}. It evaluates {event.spec.model_id}"
        return (job_event_row(header, event.job_id, "created", created),)
    files = f"training file: {event.spec.training_file}"
    if event.spec.validation_file is not None:
        files += f" and validation file: {event.spec.validation_file}"
    if event.spec.mixture:
        files += f" and further files: {', '.join(file.file_id for file in event.spec.mixture)}"
    rows = [
        job_event_row(header, event.job_id, "created", f"Created fine-tuning job: {event.job_id}"),
        job_event_row(header, event.job_id, "validating", f"Validating {files}"),
    ]
    if event.spec.ignored:
        text = f"Ignored: {', '.join(event.spec.ignored)}. {NO_WANDB}"
        rows.append(job_event_row(header, event.job_id, "ignored", text, level="warn"))
    if event.spec.same_rows or event.spec.validation_file == event.spec.training_file:
        rows.append(job_event_row(header, event.job_id, "same_file", SAME_FILE, level="warn"))
    return tuple(rows)


def _placed(header: Header, event: PlacementWanted) -> Change:
    placement = event.placement
    data = {"attempt": placement.attempt}
    if placement.role == "eval" and placement.attempt > 1:
        text = "Training finished, comparing the new model with its base"
    elif placement.role == "eval":
        text = "Comparing the model with its base"
    elif placement.attempt == 1:
        text = "Files validated, moving job to queued state"
    else:
        text = f"Moving job to queued state (attempt {placement.attempt})"
    return job_event_row(header, event.job_id, "queued", text, data=data)


def _started(header: Header, event: AttemptStarted) -> tuple[Change, ...]:
    data = {"attempt": event.attempt, "loaded_step": event.start.loaded_step}
    if event.role == "eval":
        text = "Evaluation started"
    elif event.start.loaded_step == 0:
        text = "Fine-tuning job started"
    else:
        text = f"Fine-tuning job resumed from the checkpoint of step {event.start.loaded_step}"
    rows = [job_event_row(header, event.job_id, "started", text, data=data)]
    if event.start.skipped:
        rows.append(_skipped(header, event))
    if event.start.changes:
        rows.append(_changed(header, event))
    return tuple(rows)


def _changed(header: Header, event: AttemptStarted) -> Change:
    """The message that a node computes otherwise than the one that wrote the checkpoint."""
    changes = event.start.changes
    facts = "; ".join(f"{c.name} was {c.before or 'unknown'}, is {c.now}" for c in changes)
    text = f"Resumed under other conditions, so the result may differ in its last bits: {facts}"
    data = {"changes": [{"name": c.name, "before": c.before, "now": c.now} for c in changes]}
    return job_event_row(header, event.job_id, "conditions", text, level="warn", data=data)


def _skipped(header: Header, event: AttemptStarted) -> Change:
    """The message about skipped checkpoints, which are named by the hash of their manifest."""
    skipped = event.start.skipped
    reasons = "; ".join(f"{lost.manifest_sha256}: {skip_words(lost.reason)}" for lost in skipped)
    text = f"Checkpoints that cannot be used were passed over, their work is credited. {reasons}"
    data = {"skipped": [lost.manifest_sha256 for lost in skipped]}
    return job_event_row(header, event.job_id, "skipped", text, level="warn", data=data)


def _attempt_ended(header: Header, event: AttemptEnded) -> tuple[Change, ...]:
    end = event.end
    if end.outcome == "succeeded":
        return ()
    text = ENDINGS[end.outcome].format(n=event.attempt, cause=end.cause or "unknown")
    data = {
        "attempt": event.attempt,
        "outcome": end.outcome,
        "cause": end.cause,
        "ended_by": end.ended_by,
        "reason": end.reason.code,
    }
    level: EventLevel = "warn" if end.outcome in ("lost", "failed") else "info"
    return (
        job_event_row(
            header,
            event.job_id,
            "attempt_ended",
            text,
            level=level,
            data=data,
            sealed=end.detail,
        ),
    )


def _verdict(header: Header, job_id: str, summary: ScoreSummary) -> Change:
    skills, own_task = skills_of(summary), own_task_of(summary)
    text = (
        f"Gate: {summary.verdict}; skills {skills}, own task {own_task}; right answers "
        f"{summary.adapter_correct} of {summary.items} (base model: {summary.base_correct})"
    )
    if (own := own_data_words(summary)) is not None:
        text += f"; validation rows: {own}"
    is_bad = summary.verdict == "block" or own_task == "not learnt"
    level: EventLevel = "warn" if is_bad else "info"
    data = {
        "verdict": summary.verdict,
        "skills": skills,
        "own_task": own_task,
        "reasons": reasons_words(summary),
    }
    return job_event_row(header, job_id, "verdict", text, level=level, data=data)


def _ended(header: Header, event: JobEnded) -> tuple[Change, ...]:
    if event.outcome == "succeeded":
        return (
            job_event_row(
                header, event.job_id, "model", f"New fine-tuned model created: {event.model_id}"
            ),
            job_event_row(header, event.job_id, "ended", "The job has successfully completed"),
        )
    if event.outcome == "cancelled":
        return (job_event_row(header, event.job_id, "ended", "The job was cancelled"),)
    failure = event.failure
    code = failure.code if failure else "internal_error"
    words = f" {failure_words(failure)}" if failure else ""
    return (
        job_event_row(
            header,
            event.job_id,
            "ended",
            f"The job failed: {code}.{words}",
            level="error",
            data={"code": code},
            sealed=failure.detail if failure else None,
        ),
    )


def _mirrored(header: Header, event: MirrorReported) -> Change:
    """How the writing of the figures goes. It says nothing of the job itself."""
    report = event.report
    data = {"integration": report.kind, "status": report.status, "http_status": report.http_status}
    if report.status == "written":
        text = f"The figures are in MLflow: the run with the tag tunery.job_id = {event.job_id}"
        return job_event_row(header, event.job_id, "anomaly", text, data=data)
    why = MIRROR_CAUSES[report.cause or "failed"]
    if report.http_status is not None:
        why += f" (HTTP {report.http_status})"
    text = f"The figures are not in MLflow yet: {why}. It is tried again, also after the job's end"
    if report.status == "gave_up":
        fix = f"`tunery job mirror {event.job_id} --mlflow URL` writes what is missing"
        text = f"The figures are not in MLflow: {why}. {fix}"
    return job_event_row(header, event.job_id, "anomaly", text, level="warn", data=data)


def anomaly_words(anomaly: Anomaly) -> str:
    """One sentence with what was measured and what is usual."""
    measured, usual = anomaly.measured_ppm / PPM, anomaly.usual_ppm / PPM
    match anomaly.kind:
        case "loss_spike":
            return f"The loss is {measured:.3g}, far above the usual {usual:.3g}"
        case "throughput_drop":
            return f"Training has slowed to {measured:,.0f} tokens a second from {usual:,.0f}"
        case "stuck":
            return (
                f"Nothing was heard of the attempt for {measured:,.0f} seconds; "
                f"its longest pause before was {usual:,.0f} seconds"
            )
        case "gpu_idle":
            return f"Its devices compute in only {measured:.0%} of the time"
        case "slow_node":
            return (
                f"The node trains at {measured:,.0f} tokens a second; "
                f"others of its type do {usual:,.0f} at the same work"
            )
        case "nothing_learnt" if not usual:
            return f"Nothing is learnt: the rewards of all answers are equal ({measured:.2f})"
        case "nothing_learnt":
            return f"Nothing is learnt: the loss is {measured:.3g}, and was {usual:.3g} at first"
        case _:
            assert_never(anomaly.kind)
