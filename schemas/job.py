"""Stream `job` (key: tenant, owner: scheduler): quota, budget holds, jobs, attempts.

A job is `wanted` × `phase`. Clients change `wanted`, facts change `phase`.
"""

from typing import Literal, TypeAlias

from schemas.account import Lane, PlanTerms
from schemas.admission import AdmissionCommand, AdmissionEvent
from schemas.anomaly import AnomalyRecorded, RecordAnomaly
from schemas.dataset import BaseTokens, PinTerms, Prepared
from schemas.envelope import Message, Reason, Rejected, Repeated, Tick
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
from schemas.session import SessionTerms
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
    """Apply plan terms to a tenant's admissions, and replace scheduled ones (of account)."""

    terms: PlanTerms  # the tenant's plan
    effective_at: Ms | None = None  # broker time from which the terms apply, None: immediately


class SubmitJob(Message):
    """Submit a job."""

    job_id: str
    spec: JobSpec  # what it asks for
    # tokens of its training file; None: it is being validated, and the hold waits for it
    tokens: BaseTokens | None
    cap: KeyCap | None = None  # cap of the API key that asks
    key_id: str | None = None  # API key of the request; None: not recorded
    dry_run: bool = False  # decide without submitting; a refusal is that of a real submission


class CancelJob(Message):
    """Cancel a job."""

    job_id: str


class PauseJob(Message):
    """Pause a job: it writes a checkpoint and waits."""

    job_id: str


class ResumeJob(Message):
    """Resume a job."""

    job_id: str


class RaiseSession(Message):
    """Let a session use more. One that waits at its cap goes on."""

    job_id: str
    # max_tokens, max_ms: see `SessionTerms`; not less than before
    max_tokens: Tokens
    max_ms: Ms


class RecordSessionEnding(Message):
    """Reaction of session: it takes no more commands."""

    job_id: str


class RecordFile(Message):
    """A file's validation has ended (reaction of dataset), for the jobs that wait for it."""

    file_id: str
    accepted: bool  # whether it can be trained on
    tokens: tuple[BaseTokens, ...]  # counts under each base model
    failure: Failure | None = None  # why it cannot


class RecordDataset(Message):
    """The dataset of a job is ready, or never will be (reaction of dataset)."""

    job_id: str
    prepared: Prepared | None  # the dataset
    failure: Failure | None = None  # why there is none


class RecordBase(Message):
    """The base model of a job is pinned, or cannot be (reaction of model)."""

    job_id: str
    base: Base | None  # the base model
    failure: Failure | None = None  # why there is none


class RecordWait(Message):
    """Record why the open placement waits (reaction of pool)."""

    # job_id, attempt, reason: the placement, and why it waits
    job_id: str
    attempt: int
    reason: Reason


class RecordGranted(Message):
    """The open placement has a lease (reaction of pool)."""

    # job_id, attempt, node_ids: the placement, and the nodes of its lease
    job_id: str
    attempt: int
    node_ids: tuple[str, ...]


class RecordStarted(Message):
    """The process of the open attempt has begun to work (reaction of pool)."""

    # job_id, attempt: the attempt
    job_id: str
    attempt: int
    start: AttemptStart  # what the process said


class RecordCheckpoint(Message):
    """A checkpoint of the open attempt exists (reaction of pool)."""

    job_id: str
    checkpoint: Checkpoint  # the checkpoint, which names the attempt


class RecordDraining(Message):
    """The open attempt was asked to stop (reaction of pool)."""

    # job_id, attempt: the attempt
    job_id: str
    attempt: int


class RecordUsage(Message):
    """A slice or a credit of `pool`, for the quota of its month."""

    # job_id, attempt: what used it
    job_id: str
    attempt: int
    hour_utc: int  # hours since the epoch
    gpu_ms: GpuMs  # billable use; below zero: a credit
    # what its price may depend on, None: as the default of all its fields
    source: UsageSource | None = None


class RecordClosed(Message):
    """The one end of a placement (reaction of pool)."""

    # job_id, attempt, role: the placement
    job_id: str
    attempt: int
    role: Role
    end: AttemptEnd  # how it ended


class RecordVerdict(Message):
    """Result of the verdict effect."""

    job_id: str
    summary: ScoreSummary | None  # the verdict
    failure: Failure | None = None  # why there is none


class RecordRegistered(Message):
    """The job's version is published, or never will be (reaction of model)."""

    job_id: str
    model_id: str  # the version
    failure: Failure | None = None  # why it is not


# --- events
class LimitsSet(Message):
    """Plan terms that apply to the tenant's admissions were set; scheduled terms are replaced."""

    terms: PlanTerms  # the tenant's plan
    effective_at: Ms | None = None  # broker time from which the terms apply, None: immediately


class JobSubmitted(Message):
    """Accepted and counted against the concurrency limit; phase validating."""

    job_id: str
    spec: JobSpec  # what it asks for
    # lane, price_version: its service class and its price book, for good
    lane: Lane
    price_version: str
    cap: KeyCap | None = None  # cap of the API key that asked
    key_id: str | None = None  # API key of the request; None: not recorded


class HoldTaken(Message):
    """GPU time is set aside for the job."""

    job_id: str
    tokens: BaseTokens  # tokens of its training file
    estimate: Estimate  # what it is expected to need, and the hold
    overage: bool  # whether the hold passes the tenant's soft limit
    session: SessionTerms | None = None  # terms that a session was raised to, None: it is the first


class FileNoted(Message):
    """A file's validation is known here; jobs for it may be submitted before or after."""

    file_id: str
    accepted: bool  # whether it can be trained on
    tokens: tuple[BaseTokens, ...]  # counts under each base model
    code: str | None = None  # why it cannot


class PinsWanted(Message):
    """The hold is taken: the dataset is to be prepared and kept, the base model pinned."""

    job_id: str
    terms: PinTerms  # its files, and how they are prepared, which names the base model


class DatasetBound(Message):
    """The job has its dataset."""

    job_id: str
    prepared: Prepared  # the dataset


class BaseBound(Message):
    """The job has its base model."""

    job_id: str


class WorkDescribed(Message):
    """Work of the job's next attempts, recorded before the first placement that names it."""

    pool: str  # the pool that gets the description
    description: WorkDescription  # the work and its id

    @property
    def job_id(self) -> str:
        """The job whose work it is."""
        return self.description.job_id


class PlacementWanted(Message):
    """A new attempt enters its pool's queue; phase queued (train) or evaluating (eval)."""

    pool: str  # pool that is asked
    placement: Placement  # what the attempt asks for

    @property
    def job_id(self) -> str:
        """The job whose attempt it is."""
        return self.placement.job_id


class PlacementUnwanted(Message):
    """Asks the pool to end the open attempt."""

    job_id: str
    pool: str  # the pool that the attempt was placed in
    request: EndRequest  # the attempt, and how it is to end


class WantedSet(Message):
    """The tenant changed the requested state of a job."""

    job_id: str
    wanted: Wanted  # the requested state


class PhaseSet(Message):
    """The job entered a phase."""

    job_id: str
    phase: Phase
    reason: Reason | None = None  # what it waits for or does, where the phase alone does not say it
    node_ids: tuple[str, ...] = ()  # nodes that run it, or prepare to


class WaitNoted(Message):
    """Why the job's open placement waits."""

    job_id: str
    reason: Reason


class AttemptStarted(Message):
    """The process of the open attempt has begun to work."""

    # job_id, attempt, role: the attempt
    job_id: str
    attempt: int
    role: Role
    start: AttemptStart  # what the process said


class CheckpointRecorded(Message):
    """The job can continue from a checkpoint."""

    job_id: str
    checkpoint: Checkpoint
    trained_tokens: Tokens  # the most that any checkpoint of the job has


class UsageCounted(Message):
    """Quota used in the calendar month of `hour_utc`."""

    job_id: str  # what used it
    hour_utc: int  # hours since the epoch
    gpu_ms: GpuMs  # billable use; below zero: a credit
    source: UsageSource | None = None  # see `RecordUsage`


class AttemptEnded(Message):
    """The open attempt has ended."""

    # job_id, attempt, role: the attempt
    job_id: str
    attempt: int
    role: Role
    end: AttemptEnd  # how it ended; a success without its result counts as a failure
    # job_billable_gpu_ms, job_lost_gpu_ms: billed and credited so far, over all its attempts
    job_billable_gpu_ms: GpuMs
    job_lost_gpu_ms: GpuMs
    # what is billed less what is credited at its rates, not rounded; None: its price has no rates
    job_micro_gpu_ms: MicroGpuMs | None = None
    job_tokens: Tokens = 0  # trained tokens that are billed


class VerdictRecorded(Message):
    """The gate has judged the job's result."""

    job_id: str
    summary: ScoreSummary  # the verdict


class RegistrationWanted(Message):
    """The job's result is to be published as a version."""

    terms: VersionTerms  # the version
    adapter: tuple[BlobFile, ...]  # its files, where its agent stored them

    @property
    def job_id(self) -> str:
        """The job whose result it is."""
        return self.terms.lineage.job_id


class JobEnded(Message):
    """Settled: the hold is released, what was not used goes back. Totals are final."""

    # job_id, outcome: the job, and how it ended
    job_id: str
    outcome: JobOutcome
    model_id: str | None  # its version, if it has one
    failure: Failure | None  # why it failed, where it failed
    # trained_tokens, billable_gpu_ms: over all attempts
    trained_tokens: Tokens
    billable_gpu_ms: GpuMs
    lost_gpu_ms: GpuMs  # credited part of it
    released_gpu_ms: GpuMs  # unused part of the hold
    created_at: Ms  # when it was submitted
    pool: str | None = None  # where it ran, None: it never got that far
    refund: CreditCause | None = None  # cause of a refund at its end; None: no refund
    micro_gpu_ms: MicroGpuMs | None = None  # what stays billed then
    # the version or checkpoint that its training began with, None: the base model
    start_id: str | None = None
    integrations: tuple[IntegrationKind, ...] = ()  # tools that its figures are written for


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
    | RaiseSession
    | RecordSessionEnding
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
    | Tick
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
