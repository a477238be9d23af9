"""Responses of a job's events: messages, metrics of steps, log lines."""

from typing import Any, Literal

from services.gateway.views.tables.jobs import JobEventRow, LogLineRow, StepRow
from services.gateway.web.domain.responses import ListItem, Seconds, Unseal
from tunery.work.learning import EQUAL_REWARDS


class JobEventResponse(ListItem):
    """An event of a job. `data`: the figures of a step in a metrics event, else nothing, as in
    OpenAI's API, whose typed clients read it so. `details`: facts of a message.
    """

    id: str
    object: Literal["fine_tuning.job.event"] = "fine_tuning.job.event"
    created_at: Seconds
    level: Literal["info", "warn", "error"]
    message: str
    type: Literal["message", "metrics"]
    data: dict[str, Any]
    details: dict[str, Any]


class MetricsResponse(ListItem):
    """One optimizer step. A figure that is not finite is null.

    tokens_per_second: speed of this step, without evaluations and checkpoints.
    peak_memory_bytes: the most that the training has had at once so far.
    Of training on pairs: `train_reward_accuracy`,
    the share of them whose preferred answer has gained more likelihood than the other one, and
    `train_reward_margin`, how much more, times beta. Of graded answers: `train_reward_mean`, and
    `train_reward_std`, the mean deviation among the answers to one prompt. `variant`: of several
    configurations that take turns the one whose step it is; steps and tokens are those of all.
    """

    id: str
    object: Literal["fine_tuning.job.metrics"] = "fine_tuning.job.metrics"
    created_at: Seconds
    attempt: int
    step: int
    total_steps: int
    train_loss: float | None
    train_mean_token_accuracy: float | None
    valid_loss: float | None
    valid_mean_token_accuracy: float | None
    learning_rate: float | None
    tokens: int
    elapsed_ms: int
    tokens_per_second: float | None
    peak_memory_bytes: int | None
    train_reward_accuracy: float | None = None
    train_reward_margin: float | None = None
    train_reward_mean: float | None = None
    train_reward_std: float | None = None
    valid_reward_accuracy: float | None = None
    variant: int | None = None


class LogLineResponse(ListItem):
    id: str
    object: Literal["fine_tuning.job.log"] = "fine_tuning.job.log"
    created_at: Seconds
    attempt: int
    level: str
    message: str


def message_response(row: JobEventRow, unseal: Unseal) -> JobEventResponse:
    """A message event. Its sealed part, which may quote tenant data, follows the public part."""
    detail = unseal(row.sealed, "detail")
    return JobEventResponse(
        id=row.id,
        created_at=row.at,
        level=row.level,
        message=row.message if detail is None else f"{row.message} {detail}",
        type=row.kind,
        data={},
        details=row.data or {},
    )


def step_response(row: StepRow) -> JobEventResponse:
    """A step as a metrics event."""
    data: dict[str, Any] = {
        "step": row.step,
        "total_steps": row.total_steps,
        "train_loss": row.loss,
        "train_mean_token_accuracy": row.accuracy,
    }
    if row.reward_margin is not None:
        data["train_reward_accuracy"] = row.reward_accuracy
        data["train_reward_margin"] = row.reward_margin
    if row.reward is not None:
        data["train_reward_mean"] = row.reward
        data["train_reward_std"] = row.reward_std
    if row.variant is not None:
        data["variant"] = row.variant
    shown = f"training loss={_figure(row.loss)}" if row.reward is None else _reward_words(row)
    text = f"Step {row.step}/{row.total_steps}{_of_variant(row)}: {shown}"
    if row.valid_loss is not None:
        data["valid_loss"] = row.valid_loss
        data["valid_mean_token_accuracy"] = row.valid_accuracy
        text += f", validation loss={_figure(row.valid_loss)}"
    return JobEventResponse(
        id=row.id,
        created_at=row.at,
        level="info",
        message=text,
        type="metrics",
        data=data,
        details={},
    )


def _reward_words(row: StepRow) -> str:
    """The mean reward of a step; its loss is around 0 and says little."""
    equal = row.reward_std is not None and row.reward_std < EQUAL_REWARDS
    return f"reward {_figure(row.reward)}{' (all equal: nothing learnt)' if equal else ''}"


def metrics_response(row: StepRow) -> MetricsResponse:
    """A step with all of its figures."""
    return MetricsResponse.of(
        row,
        created_at=row.at,
        train_loss=row.loss,
        train_mean_token_accuracy=row.accuracy,
        valid_mean_token_accuracy=row.valid_accuracy,
        tokens_per_second=row.tokens_per_s,
        peak_memory_bytes=row.memory_bytes,
        train_reward_accuracy=row.reward_accuracy,
        train_reward_margin=row.reward_margin,
        train_reward_mean=row.reward,
        train_reward_std=row.reward_std,
    )


def step_line_response(row: StepRow) -> LogLineResponse:
    """A step as a line of the log, with the figures that it has."""
    figures = (
        ("loss", row.loss, ".4f"),
        ("reward", row.reward, ".4f"),
        ("accuracy", row.accuracy, ".4f"),
        ("validation loss", row.valid_loss, ".4f"),
        ("learning rate", row.learning_rate, ".3g"),
    )
    known = [f"{name} {value:{form}}" for name, value, form in figures if value is not None]
    at = [f"{row.tokens:,} tokens", f"{row.elapsed_ms / 1_000:.1f} s"]
    return LogLineResponse.of(
        row,
        created_at=row.at,
        level="info",
        message=f"training: step {row.step} of {row.total_steps}{_of_variant(row)}, "
        + ", ".join([*known, *at]),
    )


def _of_variant(row: StepRow) -> str:
    """Whose step it is, where several configurations take turns."""
    return "" if row.variant is None else f" (variant {row.variant})"


def log_line_response(row: LogLineRow) -> LogLineResponse:
    return LogLineResponse.of(row, created_at=row.at)


def _figure(value: float | None) -> str:
    return "not a number" if value is None else f"{value:.2f}"
