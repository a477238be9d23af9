"""Events of a training or scoring process while it runs, one a line.

A process that trains says `Started`, then `StepCompleted`, `Evaluated`, `Checkpointed`,
`LossSpiked` and `Noted`, and last `Finished`. A process that scores says `ScoringStarted`,
`ScoringProgressed`, `ScoringFinished`. A replica says `ReplicaReady`, and `ReplicaAlive` every few
seconds. Each may end with `Preempted` or `Failed` instead. A process with several trainings says
all of this of each, as `ColocatedEvent`; a `Failed` by itself is of all of them. One that trains
variants says what a single training says: steps and tokens are those of all variants together. A
session says `Started`, `CommandDone` of each command, `SessionWaits`, `Checkpointed`, `Finished`.
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
    """Base of all events."""

    elapsed_ms: Ms = 0  # time since the process began; the writer fills it in
    # number of the variant that it is of; None: of the whole, or there are none
    variant: int | None = None


class Started(WorkEvent, frozen=True, kw_only=True, tag="started"):
    """Inputs and checkpoints are verified, the model is loaded, training begins."""

    resumed_from_step: int  # 0 for a run from the beginning
    loaded_manifest: str | None  # hash of the manifest of the checkpoint that was loaded
    skipped: tuple[SkippedCandidate, ...]  # checkpoints that could not be used
    # total_steps, tokens_total: steps and tokens of the whole run
    total_steps: int
    tokens_total: Tokens
    tokens: Tokens  # trained before this attempt
    hyper: Hyper
    precision: str  # type of the weights, "bf16" or "fp32"
    environment: dict[str, str]  # facts that must be equal for a resume to be equal to the bit
    # those that differ from the checkpoint's: (name, value then, value now)
    environment_changes: tuple[tuple[str, str, str], ...] = ()
    # rows, labels: packed rows, and tokens in them that carry loss
    rows: int
    labels: int
    # mean loss difference per token, documents packed against alone; None: there is only one
    # document, or it was shown on this machine before
    packing_difference_nats: float | None


class StepCompleted(WorkEvent, frozen=True, kw_only=True, tag="step"):
    """One optimizer step. `loss` in nats per label; `tokens` trained so far."""

    step: int
    total_steps: int
    epoch: float
    loss: float
    grad_norm: float | None
    learning_rate: float
    mean_token_accuracy: float | None
    tokens: Tokens
    tokens_total: Tokens
    tokens_per_s: float | None = None  # speed of this step, without evaluations and checkpoints
    memory_bytes: int | None = None  # the most that the process has had at once
    # what a micro-batch took each rank, without waiting; 0: it had none; empty: one rank
    rank_ms: tuple[Ms, ...] = ()
    # share of pairs whose preferred answer gained more likelihood than the other one
    reward_accuracy: float | None = None
    # reward_margin, reward_chosen, reward_rejected: mean of what they gained, times beta
    reward_margin: float | None = None
    reward_chosen: float | None = None
    reward_rejected: float | None = None
    # reward, reward_std: mean of graded answers, and the mean deviation among the answers to one
    # prompt
    reward: float | None = None
    reward_std: float | None = None
    completion_tokens: float | None = None  # their mean length


class Evaluated(WorkEvent, frozen=True, kw_only=True, tag="eval"):
    """Mean loss on the validation rows after a step, in nats per label; null without labels."""

    step: int
    valid_loss: float | None
    valid_accuracy: float | None = None  # share of labels that were the likeliest token
    valid_reward_accuracy: float | None = None  # see `StepCompleted.reward_accuracy`


class LossSpiked(WorkEvent, frozen=True, kw_only=True, tag="spike"):
    """The training loss is far above its usual values for several steps in a row."""

    step: int
    loss: float
    message: str


class Noted(WorkEvent, frozen=True, kw_only=True, tag="note"):
    """Message to the user about the run after a step, as a sentence."""

    step: int
    message: str


class Sampled(WorkEvent, frozen=True, kw_only=True, tag="sample"):
    """Answer of the model to a sample prompt after a step."""

    step: int
    prompt: str
    answer: str


class Checkpointed(WorkEvent, frozen=True, kw_only=True, tag="checkpoint"):
    """A checkpoint is written and verified."""

    step: int
    epoch: float
    dir: str
    manifest_sha256: str
    tokens: Tokens
    files: tuple[FileDigest, ...]  # those its manifest names, and the manifest itself last
    # captured_elapsed_ms, captured_monotonic_ms: when the state was taken, since the process began
    # and on the machine's monotonic clock
    captured_elapsed_ms: Ms
    captured_monotonic_ms: Ms
    write_ms: Ms  # how long the training stood still for it
    background_ms: Ms = 0  # time from the capture to its verification on disk


class Finished(WorkEvent, frozen=True, kw_only=True, tag="finished"):
    """All steps are done and the canonical adapter is written to `adapter_dir`."""

    adapter_dir: str
    adapter_sha256: str
    config_sha256: str
    files: tuple[FileDigest, ...]
    steps: int
    tokens: Tokens
    final_loss: float | None
    # loss of the result of each variant on validation rows, the best of which is `variant`; None:
    # it was not measured, or has diverged; empty: there are no variants
    valid_losses: tuple[float | None, ...] = ()


class CommandDone(WorkEvent, frozen=True, kw_only=True, tag="command_done"):
    """A command of a session is done, or nothing of it."""

    name: str
    dir: str  # where the answer is
    answer: FileDigest
    failed: bool = False  # the answer says what was wrong
    saved_dir: str = ""  # where `saved` is
    saved: tuple[FileDigest, ...] = ()  # files of what was saved
    sampled: Tokens = 0  # tokens that were sampled


class SessionWaits(WorkEvent, frozen=True, kw_only=True, tag="session_waits"):
    """There is no command to do; said every few seconds."""

    saved: bool = False  # the newest checkpoint of this attempt has all that was done


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


class RankBeat(WorkEvent, frozen=True, kw_only=True, tag="beat"):
    """A rank is running, and its address. Read by its parent process alone."""

    rank: int
    step: int = 0
    phase: str = ""  # phase of a step, such as "forward"
    micro_batch: int = 0
    # how often it has changed its place; a rank with fewer changes than others is behind
    moved: int = 0
    # collective operation that it waits in since the last heartbeat; empty: none
    collective: str = ""


class Preempted(WorkEvent, frozen=True, kw_only=True, tag="preempted"):
    """Stopped on request."""

    step: int = 0
    checkpoint: str | None = None  # the directory written last, if there is one


class Failed(WorkEvent, frozen=True, kw_only=True, tag="failed"):
    """The process cannot go on: see `tunery.work.exits.WorkError`."""

    cause: FailureCause
    message: str
    advice: str
    # rank of a training that differs from rank 0 in its input or environment
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
    | CommandDone
    | SessionWaits
    | ScoringStarted
    | ScoringProgressed
    | ScoringFinished
    | ReplicaReady
    | ReplicaAlive
    | RankBeat
    | Preempted
    | Failed
)


class ColocatedEvent(Struct, frozen=True, kw_only=True):
    """Event of one of several trainings in a process."""

    training: str  # its name in the spec
    event: AnyWorkEvent
