"""Stream `job` (key: tenant, owner: scheduler): quota, budget holds, jobs, attempts.

A job is `wanted` × `phase`. Clients change `wanted`, facts change `phase`.
"""

from typing import Literal, TypeAlias

from schemas.account import Lane, PlanTerms
from schemas.dataset import BaseTokens, LengthPolicy, PinTerms, Prepared
from schemas.envelope import Message, Part, Reason, Rejected, Repeated
from schemas.model import Base, Verdict, VersionTerms
from schemas.pool import AttemptEnd, EndRequest, Placement, Role
from schemas.reasons import Failure
from schemas.sealed import Sealed
from schemas.training import (
    AttemptStart,
    BlobFile,
    Checkpoint,
    Device,
    HyperParameters,
    WorkDescription,
)
from schemas.units import GpuMs, Micro, Ms, Tokens

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


class Price(Part):
    """One lane's prices out of one version of the price book, as shown with the estimate."""

    version: str
    currency: str
    gpu_hour_micro: Micro
    token_micro_per_million: Micro = 0


class Estimate(Part):
    """What a job is expected to need. The hold is `hold_gpu_ms`: an upper bound, never passed."""

    tokens: Tokens
    steps: int
    train_gpu_ms: GpuMs
    eval_gpu_ms: GpuMs
    hold_gpu_ms: GpuMs
    memory_bytes: int
    price_micro: Micro
    price_max_micro: Micro
    currency: str


class Budget(Part):
    """What one job may cost at most. Its hold is never above it, so neither is its use."""

    max_gpu_ms: GpuMs | None = None
    max_amount_micro: Micro | None = None


class JobSpec(Part):
    """What the tenant asked for, resolved by the gateway: no "auto" left, every input named."""

    base: Base
    training_file: str
    validation_file: str | None
    hyper: HyperParameters
    auto: tuple[str, ...]  # names of the hyper-parameters that were "auto" in the request
    length_policy: LengthPolicy
    validation_fraction_ppm: int
    slots: int
    pool: str
    suffix: Sealed | None
    metadata: Sealed | None
    series: str  # of the registry, derived from base and suffix without revealing the suffix
    model_id: str  # the id the version will get: ft:…, its suffix part is public by the API's shape
    price: Price
    device: Device = "cpu"
    budget: Budget | None = None
    drop_max_ppm: int | None = None  # of accuracy, before the gate blocks; None: the gate's own


class KeyCap(Part):
    """The API key a job was submitted with, where the key may spend so much in a calendar month."""

    key_id: str
    spend_cap_micro: Micro


class ScoreSummary(Part):
    """The gate's verdict in integers: shares in millionths, p-values in millionths.

    `reasons`: what the verdict rests on.
    """

    verdict: Verdict
    reasons: tuple[Reason, ...]
    items: int
    base_correct: int
    adapter_correct: int
    p_value_ppm: int
    base_loss_ppm: int
    adapter_loss_ppm: int
    base_exact_match_ppm: int
    adapter_exact_match_ppm: int


# --- commands
class SetLimits(Message):
    """What binds a tenant's admissions from now on (reaction of account).

    terms: the tenant's plan.
    """

    terms: PlanTerms


class SubmitJob(Message):
    """`tokens` is null while the training file is being validated; the hold waits for it."""

    job_id: str
    spec: JobSpec
    tokens: BaseTokens | None
    cap: KeyCap | None = None


class CancelJob(Message):
    job_id: str


class PauseJob(Message):
    job_id: str


class ResumeJob(Message):
    job_id: str


class RecordFile(Message):
    """A file's validation has ended (reaction of dataset), for the jobs that wait for it."""

    file_id: str
    accepted: bool
    tokens: tuple[BaseTokens, ...]
    failure: Failure | None = None


class RecordDataset(Message):
    job_id: str
    prepared: Prepared | None
    failure: Failure | None = None


class RecordBase(Message):
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
    job_id: str
    checkpoint: Checkpoint


class RecordDraining(Message):
    job_id: str
    attempt: int


class RecordUsage(Message):
    """A slice or a credit of `pool`, for the quota of its month.

    job_id, attempt: what used it.
    hour_utc: hours since the epoch.
    gpu_ms: billable use; below zero: a credit.
    """

    job_id: str
    attempt: int
    hour_utc: int
    gpu_ms: GpuMs


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
    """Outcome of the verdict effect; `failure` when the scores could not be read."""

    job_id: str
    summary: ScoreSummary | None
    failure: Failure | None = None


class RecordRegistered(Message):
    job_id: str
    model_id: str
    failure: Failure | None = None


# --- events
class LimitsSet(Message):
    """What binds the tenant's admissions from now on.

    terms: the tenant's plan.
    """

    terms: PlanTerms


class JobSubmitted(Message):
    """Accepted and counted against the concurrency limit; phase validating."""

    job_id: str
    spec: JobSpec
    lane: Lane
    price_version: str
    cap: KeyCap | None = None


class HoldTaken(Message):
    job_id: str
    tokens: BaseTokens
    estimate: Estimate
    overage: bool


class FileNoted(Message):
    """A file's validation is known here; jobs for it may be submitted before or after."""

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
    job_id: str
    prepared: Prepared


class BaseBound(Message):
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
    job_id: str
    checkpoint: Checkpoint
    trained_tokens: Tokens


class UsageCounted(Message):
    """Quota used in the calendar month of `hour_utc`.

    job_id: what used it.
    hour_utc: hours since the epoch.
    gpu_ms: billable use; below zero: a credit.
    """

    job_id: str
    hour_utc: int
    gpu_ms: GpuMs


class AttemptEnded(Message):
    """The open attempt has ended.

    job_id, attempt, role: which attempt.
    end: how it ended; a success without its result counts as a failure.
    job_billable_gpu_ms: billed so far, over all attempts of the job.
    job_lost_gpu_ms: credited so far, over all attempts of the job.
    """

    job_id: str
    attempt: int
    role: Role
    end: AttemptEnd
    job_billable_gpu_ms: GpuMs
    job_lost_gpu_ms: GpuMs


class VerdictDue(Message):
    """`drop_max_ppm`: what the tenant allows, None: the gate's own."""

    job_id: str
    scores: BlobFile
    drop_max_ppm: int | None = None


class VerdictRecorded(Message):
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
    """Settled: the hold is released, what was not used goes back. Totals are final."""

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


Command: TypeAlias = (
    SetLimits
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
    | RecordClosed
    | RecordVerdict
    | RecordRegistered
)
Event: TypeAlias = (
    LimitsSet
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
    | AttemptEnded
    | VerdictDue
    | VerdictRecorded
    | RegistrationWanted
    | JobEnded
    | Rejected
    | Repeated
)
