"""Stream `job` (key: tenant, owner: scheduler): quota, budget holds, jobs, attempts.

A job is `wanted` × `phase`. Clients change `wanted`, facts change `phase`.
"""

from typing import Literal, TypeAlias

from schemas.account import Lane, Limits
from schemas.dataset import BaseTokens, LengthPolicy, Prepared, PrepareSpec
from schemas.envelope import Message, Part, Rejected, Repeated, Sha256
from schemas.model import Base, Lineage, Verdict
from schemas.pool import CloseMode, Role
from schemas.sealed import Sealed
from schemas.training import (
    AttemptOutcome,
    BlobFile,
    Checkpoint,
    Device,
    FailureCause,
    HyperParameters,
    Result,
    SkippedCheckpoint,
    Work,
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
    line: str  # registry line, derived from base and suffix without revealing the suffix
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
    """The gate's verdict in integers: shares in millionths, p-values in millionths."""

    verdict: Verdict
    reasons: tuple[str, ...]
    items: int
    base_correct: int
    adapter_correct: int
    p_value_ppm: int
    base_loss_ppm: int
    adapter_loss_ppm: int
    base_exact_match_ppm: int
    adapter_exact_match_ppm: int
    advice: str | None


class Failure(Part):
    """Why a job ended without success.

    `message` may quote tenant data, so it is sealed; `advice` is in our own words and quotes none.
    """

    code: str
    message: Sealed | None
    param: str | None = None
    advice: str | None = None


# --- commands
class SetLimits(Message):
    lane: Lane
    limits: Limits
    price_version: str


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
    message: str | None
    code: str | None = None


class RecordDataset(Message):
    job_id: str
    prepared: Prepared | None
    code: str | None = None
    message: str | None = None


class RecordBase(Message):
    job_id: str
    base: Base | None
    code: str | None = None
    message: str | None = None


class RecordWait(Message):
    job_id: str
    attempt: int
    reason: str
    position: int


class RecordGranted(Message):
    job_id: str
    attempt: int
    node_id: str


class RecordStarted(Message):
    job_id: str
    attempt: int
    loaded_step: int
    skipped: tuple[SkippedCheckpoint, ...]
    total_steps: int


class RecordCheckpoint(Message):
    job_id: str
    checkpoint: Checkpoint


class RecordDraining(Message):
    job_id: str
    attempt: int


class RecordUsage(Message):
    """A slice or credit line of `pool`, for the quota window of its hour. Credits are negative."""

    job_id: str
    attempt: int
    hour: int
    gpu_ms: GpuMs


class RecordClosed(Message):
    job_id: str
    attempt: int
    role: Role
    outcome: AttemptOutcome
    cause: FailureCause | None
    message: Sealed | None
    result: Result | None
    node_id: str | None
    used_gpu_ms: GpuMs
    billable_gpu_ms: GpuMs
    lost_gpu_ms: GpuMs


class RecordVerdict(Message):
    """Outcome of the verdict effect; `failure` when the scores could not be read."""

    job_id: str
    summary: ScoreSummary | None
    failure: str | None = None


class RecordRegistered(Message):
    job_id: str
    model_id: str
    failure: str | None = None


# --- events
class LimitsSet(Message):
    lane: Lane
    limits: Limits
    price_version: str


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
    """The hold is taken: the data set is to be prepared and kept, the base model pinned."""

    job_id: str
    training_file: str
    validation_file: str | None
    prepare: PrepareSpec
    base_id: str
    base_sha256: Sha256


class DatasetBound(Message):
    job_id: str
    prepared: Prepared


class BaseBound(Message):
    job_id: str


class PlacementWanted(Message):
    """A new attempt enters its pool's queue; phase queued (train) or evaluating (eval)."""

    job_id: str
    pool: str
    attempt: int
    role: Role
    lane: Lane
    slots: int
    max_gpu_ms: GpuMs
    price_version: str
    work: Work
    checkpoints: tuple[Checkpoint, ...]
    exclude_nodes: tuple[str, ...]


class PlacementUnwanted(Message):
    """Asks the pool to end the open attempt."""

    job_id: str
    pool: str
    attempt: int
    mode: CloseMode


class WantedSet(Message):
    job_id: str
    wanted: Wanted


class PhaseSet(Message):
    """`reason` is for people: why it waits, what it does."""

    job_id: str
    phase: Phase
    reason: str | None = None
    node_id: str | None = None


class WaitNoted(Message):
    job_id: str
    reason: str
    position: int


class AttemptStarted(Message):
    job_id: str
    attempt: int
    role: Role
    loaded_step: int
    skipped: tuple[SkippedCheckpoint, ...]
    total_steps: int


class CheckpointRecorded(Message):
    job_id: str
    checkpoint: Checkpoint
    trained_tokens: Tokens


class UsageCounted(Message):
    """Quota used in the calendar month of `hour`; credits are negative."""

    job_id: str
    hour: int
    gpu_ms: GpuMs


class AttemptEnded(Message):
    """Totals are the job's so far."""

    job_id: str
    attempt: int
    role: Role
    outcome: AttemptOutcome
    cause: FailureCause | None
    message: Sealed | None
    node_id: str | None
    result: Result | None
    billable_gpu_ms: GpuMs
    lost_gpu_ms: GpuMs


class VerdictDue(Message):
    """`drop_max_ppm`: what the tenant allows, None: the gate's own."""

    job_id: str
    scores: BlobFile
    drop_max_ppm: int | None = None


class VerdictRecorded(Message):
    job_id: str
    summary: ScoreSummary


class RegistrationWanted(Message):
    job_id: str
    model_id: str
    line: str
    lineage: Lineage
    adapter: tuple[BlobFile, ...]


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
