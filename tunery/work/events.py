"""What a training or scoring process says while it runs, one event a line.

A process that trains says `Started`, then `StepCompleted`, `Evaluated`, `Checkpointed`,
`LossSpiked` and `Noted`, and last `Finished`. A process that scores says `ScoringStarted`,
`ScoringProgressed`, `ScoringFinished`. A replica says `ReplicaReady`, and `ReplicaAlive` every few
seconds. Each may end with `Preempted` or `Failed` instead. A process with several trainings says
all of this of each, as `ColocatedEvent`; a `Failed` by itself is of all of them. One that trains
variants says what a single training says: steps and tokens are those of all variants together.
"""

from typing import TypeAlias

from msgspec import Struct

from schemas.training import FailureCause
from schemas.units import Ms, Tokens
from tunery.work.spec import Hyper


class FileDigest(Struct, frozen=True, kw_only=True):
    """One file of a directory: its name there, the SHA-256 of its content, its size."""

    name: str
    sha256: str
    bytes: int


class SkippedCandidate(Struct, frozen=True, kw_only=True):
    """A checkpoint that was named in the spec and could not be used, and why."""

    dir: str
    manifest_sha256: str
    reason: str


class WorkEvent(Struct, frozen=True, kw_only=True, tag_field="type"):
    """Base of all events.

    elapsed_ms: since the process began; the writer fills it in
    variant: number of the variant that it is of; None: of the whole, or there are none
    """

    elapsed_ms: Ms = 0
    variant: int | None = None


class Started(WorkEvent, frozen=True, kw_only=True, tag="started"):
    """Inputs and checkpoints are verified, the model is loaded, training begins.

    resumed_from_step: 0 for a run from the beginning
    loaded_manifest: hash of the manifest of the checkpoint that was loaded
    skipped: checkpoints that could not be used
    total_steps, tokens_total: of the whole run
    tokens: trained before this attempt
    precision: of the weights, "bf16" or "fp32"
    environment: facts that must be equal for a resume to be equal to the bit
    environment_changes: those that differ from the checkpoint's: (name, value then, value now)
    rows, labels: packed rows, and tokens in them that carry loss
    packing_difference_nats: mean loss difference per token, documents packed against alone;
      None: there is only one document, or it was shown on this machine before
    """

    resumed_from_step: int
    loaded_manifest: str | None
    skipped: tuple[SkippedCandidate, ...]
    total_steps: int
    tokens_total: Tokens
    tokens: Tokens
    hyper: Hyper
    precision: str
    environment: dict[str, str]
    environment_changes: tuple[tuple[str, str, str], ...] = ()
    rows: int
    labels: int
    packing_difference_nats: float | None


class StepCompleted(WorkEvent, frozen=True, kw_only=True, tag="step"):
    """One optimizer step. `loss` in nats per label; `tokens` trained so far.

    tokens_per_s: of this step, without evaluations and checkpoints
    memory_bytes: the most that the process has had at once
    rank_ms: what a micro-batch took each rank, without waiting; 0: it had none; empty: one rank
    reward_accuracy: share of pairs whose preferred answer gained more likelihood than the other one
    reward_margin, reward_chosen, reward_rejected: mean of what they gained, times beta
    reward, reward_std: of graded answers: mean, and the mean deviation among those to one prompt
    completion_tokens: their mean length
    """

    step: int
    total_steps: int
    epoch: float
    loss: float
    grad_norm: float | None
    learning_rate: float
    mean_token_accuracy: float | None
    tokens: Tokens
    tokens_total: Tokens
    tokens_per_s: float | None = None
    memory_bytes: int | None = None
    rank_ms: tuple[Ms, ...] = ()
    reward_accuracy: float | None = None
    reward_margin: float | None = None
    reward_chosen: float | None = None
    reward_rejected: float | None = None
    reward: float | None = None
    reward_std: float | None = None
    completion_tokens: float | None = None


class Evaluated(WorkEvent, frozen=True, kw_only=True, tag="eval"):
    """Mean loss on the validation rows after a step, in nats per label; null without labels.

    valid_accuracy: share of labels that were the likeliest token.
    valid_reward_accuracy: as `StepCompleted.reward_accuracy`.
    """

    step: int
    valid_loss: float | None
    valid_accuracy: float | None = None
    valid_reward_accuracy: float | None = None


class LossSpiked(WorkEvent, frozen=True, kw_only=True, tag="spike"):
    """The training loss is far above its usual values for several steps in a row."""

    step: int
    loss: float
    message: str


class Noted(WorkEvent, frozen=True, kw_only=True, tag="note"):
    """What a user should know of the run after a step, as a sentence."""

    step: int
    message: str


class Sampled(WorkEvent, frozen=True, kw_only=True, tag="sample"):
    """What the model answers to a prompt after a step."""

    step: int
    prompt: str
    answer: str


class Checkpointed(WorkEvent, frozen=True, kw_only=True, tag="checkpoint"):
    """A checkpoint is written and verified.

    files: those its manifest names, and the manifest itself last
    captured_elapsed_ms, captured_monotonic_ms: when the state was taken, since the process began
        and on the machine's monotonic clock
    write_ms: how long the training stood still for it
    background_ms: from when it was taken until it was verified on disk
    """

    step: int
    epoch: float
    dir: str
    manifest_sha256: str
    tokens: Tokens
    files: tuple[FileDigest, ...]
    captured_elapsed_ms: Ms
    captured_monotonic_ms: Ms
    write_ms: Ms
    background_ms: Ms = 0


class Finished(WorkEvent, frozen=True, kw_only=True, tag="finished"):
    """All steps are done and the canonical adapter is written to `adapter_dir`.

    valid_losses: of each variant, whose best is `variant`: on validation rows, of what it has left;
      None: it was not measured, or has diverged; empty: there are no variants
    """

    adapter_dir: str
    adapter_sha256: str
    config_sha256: str
    files: tuple[FileDigest, ...]
    steps: int
    tokens: Tokens
    final_loss: float | None
    valid_losses: tuple[float | None, ...] = ()


class ScoringStarted(WorkEvent, frozen=True, kw_only=True, tag="scoring_started"):
    """Base and adapter are loaded; how many items and prompts will be answered by both."""

    items: int
    prompts: int


class ScoringProgressed(WorkEvent, frozen=True, kw_only=True, tag="scoring_progress"):
    """`done` of `total` parts of a stage, such as "items_base"."""

    stage: str
    done: int
    total: int


class ScoringFinished(WorkEvent, frozen=True, kw_only=True, tag="scoring_finished"):
    """The results file is written: its path, hash and size."""

    results: str
    sha256: str
    bytes: int


class ReplicaReady(WorkEvent, frozen=True, kw_only=True, tag="replica_ready"):
    """The base model is verified, in the engine's format, and questions are answered."""


class ReplicaAlive(WorkEvent, frozen=True, kw_only=True, tag="replica_alive"):
    """The replica answers still."""


class Preempted(WorkEvent, frozen=True, kw_only=True, tag="preempted"):
    """Stopped on request. `checkpoint`: the directory written last, if there is one."""

    step: int = 0
    checkpoint: str | None = None


class Failed(WorkEvent, frozen=True, kw_only=True, tag="failed"):
    """The process cannot go on: see `tunery.work.exits.WorkError`.

    rank: of a training, which differs from rank 0 in what it reads or computes with
    """

    cause: FailureCause
    message: str
    advice: str
    rank: int | None = None


AnyWorkEvent: TypeAlias = (
    Started
    | StepCompleted
    | Evaluated
    | LossSpiked
    | Noted
    | Sampled
    | Checkpointed
    | Finished
    | ScoringStarted
    | ScoringProgressed
    | ScoringFinished
    | ReplicaReady
    | ReplicaAlive
    | Preempted
    | Failed
)


class ColocatedEvent(Struct, frozen=True, kw_only=True):
    """What one of several trainings of a process says. `training`: its name in the spec."""

    training: str
    event: AnyWorkEvent
