"""Topics that are not journals: per-step metrics and log lines (7 days), heartbeats (1 hour)."""

from typing import TypeAlias

from schemas.envelope import Message
from schemas.units import Ms, Tokens


class Step(Message):
    """One optimizer step. Loss and rates are floats: telemetry is never money.

    A loss that is not finite arrives as null, because JSON has no NaN.

    tokens_per_s: of this step, without evaluations and checkpoints.
    memory_bytes: the most that the process has had at once, of the device or of a machine without.
    valid_accuracy: share of the labels of validation rows that were the likeliest token.
    reward_accuracy, valid_reward_accuracy: share of pairs whose preferred answer has gained more
      likelihood than the other one, in the step and of validation pairs.
    reward_margin: how much more, times beta.
    reward, reward_std: of graded answers: mean, and mean deviation among those to one prompt.
    busy_percent: of the time in which the attempt's devices compute, their mean; None: it has none,
      or they do not say.
    node_id, node_type: where it was taken, and the model of the node's devices; empty: not known.
    work: the same where the same work is done; empty: not known.
    variant: number of the variant whose step it is, where several take turns: `step`, `total_steps`
      and `tokens` are of all of them, the rest is its own. None: there are none.
    """

    tenant: str
    job_id: str
    attempt: int
    step: int
    total_steps: int
    loss: float | None
    accuracy: float | None
    grad_norm: float | None
    learning_rate: float
    tokens: Tokens
    elapsed_ms: Ms
    valid_loss: float | None = None
    tokens_per_s: float | None = None
    memory_bytes: int | None = None
    valid_accuracy: float | None = None
    reward_accuracy: float | None = None
    reward_margin: float | None = None
    reward: float | None = None
    reward_std: float | None = None
    valid_reward_accuracy: float | None = None
    busy_percent: int | None = None
    node_id: str = ""
    node_type: str = ""
    work: str = ""
    variant: int | None = None


class LogLine(Message):
    tenant: str
    job_id: str
    attempt: int
    level: str
    text: str


class Progress(Message):
    """Progress of work that has no optimizer steps (evaluation, validation), in millionths."""

    tenant: str
    job_id: str
    attempt: int
    stage: str
    done_ppm: int


class Heartbeat(Message):
    """A node lives.

    leases: those whose work it has taken up and not reported the end of.
    idle_ms: in their order, how long a process that has started has said nothing.
    elapsed_ms: in their order, monotonic time since the start; 0 before it.
    prepared_bytes: in their order, what was fetched and read for the start.
    """

    pool: str
    node_id: str
    incarnation: str
    leases: tuple[int, ...]
    idle_ms: tuple[Ms, ...] = ()
    elapsed_ms: tuple[Ms, ...] = ()
    prepared_bytes: tuple[int, ...] = ()


Telemetry: TypeAlias = Step | LogLine | Progress
