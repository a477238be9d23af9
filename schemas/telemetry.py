"""Topics that are not journals: per-step metrics and log lines (7 days), heartbeats (1 hour)."""

from typing import TypeAlias

from schemas.envelope import Message
from schemas.units import Ms, Tokens


class Step(Message):
    """One optimizer step. Loss and rates are floats: telemetry is never money.

    A loss that is not finite arrives as null, because JSON has no NaN.
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
    tokens_per_s: float | None = None  # speed of this step, without evaluations and checkpoints
    # peak memory of the process so far: of its device, or of the machine where it has none
    memory_bytes: int | None = None
    # share of the labels of validation rows that were the likeliest token
    valid_accuracy: float | None = None
    # reward_accuracy, valid_reward_accuracy: share of pairs whose preferred answer has gained more
    # likelihood than the other one, in the step and of validation pairs
    reward_accuracy: float | None = None
    reward_margin: float | None = None  # how much more, times beta
    # reward, reward_std: mean of graded answers, and mean deviation among the answers to one prompt
    reward: float | None = None
    reward_std: float | None = None
    valid_reward_accuracy: float | None = None
    # share of the time in which the attempt's devices compute, their mean; None: no devices, or
    # unknown
    busy_percent: int | None = None
    # node_id, node_type: node that took the step, and the model of its devices; empty: not known
    node_id: str = ""
    node_type: str = ""
    # equal where nodes do the same work, so that their speeds compare; empty: not known
    work: str = ""
    # number of the variant that took the step, where several take turns: `step`, `total_steps` and
    # `tokens` count all of them, the rest is its own; None: there are none
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
    """A node lives."""

    pool: str
    node_id: str
    incarnation: str
    leases: tuple[int, ...]  # leases that the agent has begun, and whose end it has not reported
    # time since a started process last sent anything, in the order of `leases`
    idle_ms: tuple[Ms, ...] = ()
    # monotonic time since the start, in the order of `leases`; 0 before it
    elapsed_ms: tuple[Ms, ...] = ()
    # bytes fetched and read for the start, in the order of `leases`
    prepared_bytes: tuple[int, ...] = ()


Telemetry: TypeAlias = Step | LogLine | Progress
