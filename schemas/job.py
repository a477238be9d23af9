"""Stream `job` (key: tenant, owner: scheduler): quota, budget holds, jobs, attempts.

A job is `wanted` × `phase`. Clients change `wanted`, facts change `phase`.
"""

from typing import Literal, TypeAlias

from schemas.account import Lane, PlanTerms
from schemas.admission import AdmissionCommand, AdmissionEvent
from schemas.anomaly import AnomalyRecorded, RecordAnomaly
from schemas.dataset import BaseTokens, PinTerms, Prepared
from schemas.envelope import Message, Reason, Rejected, Repeated
from schemas.erasure import CloseJobs, JobErasureEvent
from schemas.gate import GateRunEnded as GateRunEnded
from schemas.gate import LookTaken as LookTaken
from schemas.gate import RecordLook as RecordLook
from schemas.gate import VerdictDue as VerdictDue
from schemas.integrations import IntegrationKind, MirrorReported, RecordMirror
from schemas.model import Base, ScoreSummary, VersionTerms
from schemas.pool import AttemptEnd, CreditCause, EndRequest, Placement, Role
from schemas.reasons import Failure
from schemas.serving import ServingCommand, ServingEvent
from schemas.submission import Estimate, JobSpec, KeyCap, UsageSource
from schemas.sweep import SweepCommand, SweepEvent
from schemas.training import AttemptStart, BlobFile, Checkpoint, WorkDescription
from schemas.units import GpuMs, MicroGpuMs, Ms, Tokens

Wanted: TypeAlias = Literal["run", "paused", "cancelled"]
Phase: TypeAlias = Literal[
    "validating",
    "queued",
    "provisioning",
    "running",
    "checkpointing",
    "evaluating",
    "registering",
    "done",
]
JobOutcome: TypeAlias = Literal["succeeded", "failed", "cancelled"]


# --- commands
class SetLimits(Message):
    """What binds a tenant's admissions (reaction of account). Replaces what was to come.

    terms: the tenant's plan.
    effective_at: from when on, by the time of the broker, None: from now on.
    """

    terms: PlanTerms
    effective_at: Ms | None = None


class SubmitJob(Message):
    """A tenant wants a job.

    job_id: the job.
    spec: what it asks for.
    tokens: of its training file, None: it is being validated, and the hold waits for it.
    cap: of the API key that asks.
    key_id: the API key that asks, None: the writer did not say.
    dry_run: only decide: nothing is submitted, and a refusal is the one that a submission gets.
    """

    job_id: str
    spec: JobSpec
    tokens: BaseTokens | None
    cap: KeyCap | None = None
    key_id: str | None = None
    dry_run: bool = False


class CancelJob(Message):
    """The job shall end.

    job_id: the job.
    """

    job_id: str


class PauseJob(Message):
    """The job shall write a checkpoint and wait.

    job_id: the job.
    """

    job_id: str


class ResumeJob(Message):
    """The job shall go on.

    job_id: the job.
    """

    job_id: str


class RecordFile(Message):
    """A file's validation has ended (reaction of dataset), for the jobs that wait for it.

    file_id: the file.
    accepted: whether it can be trained on.
    tokens: counts under each base model.
    failure: why it cannot.
    """

    file_id: str
    accepted: bool
    tokens: tuple[BaseTokens, ...]
    failure: Failure | None = None


class RecordDataset(Message):
    """The dataset of a job is ready, or never will be (reaction of dataset).

    job_id: the job.
    prepared: the dataset.
    failure: why there is none.
    """

    job_id: str
    prepared: Prepared | None
    failure: Failure | None = None


class RecordBase(Message):
    """The base model of a job is pinned, or cannot be (reaction of model).

    job_id: the job.
    base: the base model.
    failure: why there is none.
    """

    job_id: str
    base: Base | None
    failure: Failure | None = None


class RecordWait(Message):
    """Why the open placement waits (reaction of pool).

    job_id, attempt: which placement.
    reason: why.
    """

    job_id: str
    attempt: int
    reason: Reason


class RecordGranted(Message):
    """The open placement has a lease (reaction of pool).

    job_id, attempt: which placement.
    node_ids: nodes of the lease.
    """

    job_id: str
    attempt: int
    node_ids: tuple[str, ...]


class RecordStarted(Message):
    """The process of the open attempt has begun to work (reaction of pool).

    job_id, attempt: which attempt.
    start: what the process said.
    """

    job_id: str
    attempt: int
    start: AttemptStart


class RecordCheckpoint(Message):
    """A checkpoint of the open attempt exists (reaction of pool).

    job_id: the job.
    checkpoint: the checkpoint, which names the attempt.
    """

    job_id: str
    checkpoint: Checkpoint


class RecordDraining(Message):
    """The open attempt was told to stop (reaction of pool).

    job_id, attempt: which attempt.
    """

    job_id: str
    attempt: int


class RecordUsage(Message):
    """A slice or a credit of `pool`, for the quota of its month.

    job_id, attempt: what used it.
    hour_utc: hours since the epoch.
    gpu_ms: billable use; below zero: a credit.
    source: what its price may depend on, None: as the default of all its fields.
    """

    job_id: str
    attempt: int
    hour_utc: int
    gpu_ms: GpuMs
    source: UsageSource | None = None


class RecordClosed(Message):
    """The one end of a placement (reaction of pool).

    job_id, attempt, role: which placement.
    end: how it ended.
    """

    job_id: str
    attempt: int
    role: Role
    end: AttemptEnd


class RecordVerdict(Message):
    """Result of the verdict effect.

    job_id: the job.
    summary: the verdict.
    failure: why there is none.
    """

    job_id: str
    summary: ScoreSummary | None
    failure: Failure | None = None


class RecordRegistered(Message):
    """The job's version is published, or never will be (reaction of model).

    job_id: the job.
    model_id: the version.
    failure: why it is not.
    """

    job_id: str
    model_id: str
    failure: Failure | None = None


# --- events
class LimitsSet(Message):
    """What binds the tenant's admissions. Replaces what was to come.

    terms: the tenant's plan.
    effective_at: from when on, by the time of the broker, None: from now on.
    """

    terms: PlanTerms
    effective_at: Ms | None = None


class JobSubmitted(Message):
    """Accepted and counted against the concurrency limit; phase validating.

    job_id: the job.
    spec: what it asks for.
    lane, price_version: its service class and its price book, for good.
    cap: of the API key that asked.
    key_id: the API key that asked, None: the writer did not say.
    """

    job_id: str
    spec: JobSpec
    lane: Lane
    price_version: str
    cap: KeyCap | None = None
    key_id: str | None = None


class HoldTaken(Message):
    """GPU time is set aside for the job.

    job_id: the job.
    tokens: of its training file.
    estimate: what it is expected to need, and the hold.
    overage: whether the hold passes the tenant's soft limit.
    """

    job_id: str
    tokens: BaseTokens
    estimate: Estimate
    overage: bool


class FileNoted(Message):
    """A file's validation is known here; jobs for it may be submitted before or after.

    file_id: the file.
    accepted: whether it can be trained on. code: why it cannot.
    tokens: counts under each base model.
    """

    file_id: str
    accepted: bool
    tokens: tuple[BaseTokens, ...]
    code: str | None = None


class PinsWanted(Message):
    """The hold is taken: the dataset is to be prepared and kept, the base model pinned.

    job_id: the job.
    terms: its files, and how they are prepared, which names the base model.
    """

    job_id: str
    terms: PinTerms


class DatasetBound(Message):
    """The job has its dataset.

    job_id: the job.
    prepared: the dataset.
    """

    job_id: str
    prepared: Prepared


class BaseBound(Message):
    """The job has its base model.

    job_id: the job.
    """

    job_id: str


class WorkDescribed(Message):
    """What the job's next attempts do. Written before the first placement that refers to it.

    pool: the pool that gets the description.
    description: the work and its id.
    """

    pool: str
    description: WorkDescription

    @property
    def job_id(self) -> str:
        """The job whose work it is."""
        return self.description.job_id


class PlacementWanted(Message):
    """A new attempt enters its pool's queue; phase queued (train) or evaluating (eval).

    pool: pool that is asked.
    placement: what the attempt asks for.
    """

    pool: str
    placement: Placement

    @property
    def job_id(self) -> str:
        """The job whose attempt it is."""
        return self.placement.job_id


class PlacementUnwanted(Message):
    """Asks the pool to end the open attempt.

    job_id: the job.
    pool: the pool that the attempt was placed in.
    request: which attempt, and how it is to end.
    """

    job_id: str
    pool: str
    request: EndRequest


class WantedSet(Message):
    """What the tenant wants of the job now.

    job_id: the job.
    wanted: what.
    """

    job_id: str
    wanted: Wanted


class PhaseSet(Message):
    """Where the job is now.

    job_id: the job.
    phase: the phase.
    reason: what it waits for or does, where the phase alone does not say it.
    node_ids: nodes that run it, or prepare to.
    """

    job_id: str
    phase: Phase
    reason: Reason | None = None
    node_ids: tuple[str, ...] = ()


class WaitNoted(Message):
    """Why the job's open placement waits.

    job_id: the job.
    reason: why.
    """

    job_id: str
    reason: Reason


class AttemptStarted(Message):
    """The process of the open attempt has begun to work.

    job_id, attempt, role: which attempt.
    start: what the process said.
    """

    job_id: str
    attempt: int
    role: Role
    start: AttemptStart


class CheckpointRecorded(Message):
    """The job can go on from a checkpoint.

    job_id: the job.
    checkpoint: the checkpoint.
    trained_tokens: the most that any checkpoint of the job has.
    """

    job_id: str
    checkpoint: Checkpoint
    trained_tokens: Tokens


class UsageCounted(Message):
    """Quota used in the calendar month of `hour_utc`.

    job_id: what used it.
    hour_utc: hours since the epoch.
    gpu_ms: billable use; below zero: a credit.
    source: as in `RecordUsage`.
    """

    job_id: str
    hour_utc: int
    gpu_ms: GpuMs
    source: UsageSource | None = None


class AttemptEnded(Message):
    """The open attempt has ended.

    job_id, attempt, role: which attempt.
    end: how it ended; a success without its result counts as a failure.
    job_billable_gpu_ms, job_lost_gpu_ms: billed and credited so far, over all its attempts.
    job_micro_gpu_ms: what is billed less what is credited at its rates, not rounded; None: its
      price has no rates.
    job_tokens: trained tokens that are billed.
    """

    job_id: str
    attempt: int
    role: Role
    end: AttemptEnd
    job_billable_gpu_ms: GpuMs
    job_lost_gpu_ms: GpuMs
    job_micro_gpu_ms: MicroGpuMs | None = None
    job_tokens: Tokens = 0


class VerdictRecorded(Message):
    """The gate has judged the job's result.

    job_id: the job.
    summary: the verdict.
    """

    job_id: str
    summary: ScoreSummary


class RegistrationWanted(Message):
    """The job's result is to be published as a version.

    terms: the version.
    adapter: its files, where its agent stored them.
    """

    terms: VersionTerms
    adapter: tuple[BlobFile, ...]

    @property
    def job_id(self) -> str:
        """The job whose result it is."""
        return self.terms.lineage.job_id


class JobEnded(Message):
    """Settled: the hold is released, what was not used goes back. Totals are final.

    job_id, outcome: the job, and what became of it.
    model_id: its version, if it has one. failure: why it failed, where it failed.
    trained_tokens, billable_gpu_ms: over all attempts.
    lost_gpu_ms: what of that is credited; released_gpu_ms: what of the hold was not used.
    created_at: when it was submitted. pool: where it ran, None: it never got that far.
    refund: why all that it is charged is given back, None: it is not; then all is `lost_gpu_ms`.
    start_id: the version or checkpoint that its training began with, None: the base model.
    integrations: tools that its figures are written for.
    """

    job_id: str
    outcome: JobOutcome
    model_id: str | None
    failure: Failure | None
    trained_tokens: Tokens
    billable_gpu_ms: GpuMs
    lost_gpu_ms: GpuMs
    released_gpu_ms: GpuMs
    created_at: Ms
    pool: str | None = None
    refund: CreditCause | None = None
    start_id: str | None = None
    integrations: tuple[IntegrationKind, ...] = ()


Command: TypeAlias = (
    SetLimits
    | AdmissionCommand
    | SweepCommand
    | ServingCommand
    | CloseJobs
    | SubmitJob
    | CancelJob
    | PauseJob
    | ResumeJob
    | RecordFile
    | RecordDataset
    | RecordBase
    | RecordWait
    | RecordGranted
    | RecordStarted
    | RecordCheckpoint
    | RecordDraining
    | RecordUsage
    | RecordAnomaly
    | RecordClosed
    | RecordLook
    | RecordVerdict
    | RecordRegistered
    | RecordMirror
)
Event: TypeAlias = (
    LimitsSet
    | AdmissionEvent
    | SweepEvent
    | ServingEvent
    | JobErasureEvent
    | JobSubmitted
    | HoldTaken
    | FileNoted
    | PinsWanted
    | DatasetBound
    | BaseBound
    | WorkDescribed
    | PlacementWanted
    | PlacementUnwanted
    | WantedSet
    | PhaseSet
    | WaitNoted
    | AttemptStarted
    | CheckpointRecorded
    | UsageCounted
    | AnomalyRecorded
    | AttemptEnded
    | VerdictDue
    | LookTaken
    | VerdictRecorded
    | RegistrationWanted
    | GateRunEnded
    | JobEnded
    | MirrorReported
    | Rejected
    | Repeated
)
