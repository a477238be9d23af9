"""Events, metrics and log lines of a job as the API shows them."""

import pytest
from msgspec.structs import replace

from schemas.sealed import Sealed
from services.gateway.jobs.domain.event_responses import (
    log_line_response,
    message_response,
    metrics_response,
    step_line_response,
    step_response,
)
from services.gateway.views.tables.jobs import JobEventRow, LogLineRow, StepRow

SEALED = Sealed(key_id="k", nonce=b"n", ciphertext=b"c")
MESSAGE = JobEventRow(
    tenant="acme",
    job_id="ftjob-1",
    id="ftevent-1",
    at=1_999,
    level="info",
    kind="message",
    message="Attempt 1 failed: diverged",
    sealed=None,
    data=None,
)
STEP = StepRow(
    tenant="acme",
    job_id="ftjob-1",
    id="ftevent-2",
    step=3,
    total_steps=20,
    at=2_500,
    attempt=1,
    loss=1.256,
    accuracy=0.5,
    valid_loss=None,
    valid_accuracy=None,
    learning_rate=None,
    tokens=100,
    elapsed_ms=8_000,
    tokens_per_s=312.5,
    memory_bytes=2_170_000_000,
)


def test_a_message_is_shown_with_its_time_and_no_data() -> None:
    shown = message_response(MESSAGE, lambda sealed, _field: None)
    assert (shown.created_at, shown.message, shown.data) == (MESSAGE.at, MESSAGE.message, {})


def test_first_hour2_report_4_only_figures_of_steps_are_in_the_data_of_an_event() -> None:
    """Typed clients read `data` that has anything as the figures of a step."""
    shown = message_response(replace(MESSAGE, data={"attempt": 1}), lambda _sealed, _field: None)
    assert (shown.data, shown.details) == ({}, {"attempt": 1})
    step = step_response(STEP)
    assert {"step", "train_loss", "train_mean_token_accuracy"} <= step.data.keys()
    assert step.details == {}


def test_the_sealed_part_follows_our_own_words() -> None:
    shown = message_response(replace(MESSAGE, sealed=SEALED), lambda sealed, _field: "at row 7")
    assert shown.message == "Attempt 1 failed: diverged at row 7"


def test_a_step_is_a_metrics_event_with_the_figures_it_has() -> None:
    shown = step_response(STEP)
    assert (shown.type, shown.message) == ("metrics", "Step 3/20: training loss=1.26")
    assert "valid_loss" not in shown.data
    validated = step_response(replace(STEP, valid_loss=0.5, valid_accuracy=0.25))
    assert validated.data["valid_mean_token_accuracy"] == 0.25
    assert validated.message == "Step 3/20: training loss=1.26, validation loss=0.50"
    assert validated.data["valid_loss"] == 0.5


def test_a_step_of_one_that_takes_turns_says_whose_it_is() -> None:
    step = replace(STEP, variant=1)
    shown = step_response(step)
    assert shown.message == "Step 3/20 (variant 1): training loss=1.26"
    assert shown.data["variant"] == metrics_response(step).variant == 1
    assert step_line_response(step).message.startswith("training: step 3 of 20 (variant 1), loss")


def test_a_figure_that_was_not_finite_is_null() -> None:
    broken = replace(STEP, loss=None, accuracy=None, valid_loss=None, learning_rate=None)
    event, metrics = step_response(broken), metrics_response(broken)
    assert event.message == "Step 3/20: training loss=not a number"
    assert (event.data["train_loss"], event.data["train_mean_token_accuracy"]) == (None, None)
    assert (metrics.train_loss, metrics.valid_loss, metrics.learning_rate) == (None, None, None)


def test_training_metrics_have_speed_and_memory() -> None:
    metrics = metrics_response(STEP)
    assert (metrics.tokens_per_second, metrics.peak_memory_bytes) == (312.5, 2_170_000_000)


def test_a_log_line_keeps_its_attempt_and_level() -> None:
    line = LogLineRow(
        tenant="acme", job_id="j", id="l", at=3_000, attempt=2, level="warn", message="slow"
    )
    shown = log_line_response(line)
    assert (shown.created_at, shown.attempt, shown.level, shown.message) == (
        line.at,
        2,
        "warn",
        "slow",
    )


def test_first_hour_11_a_step_is_a_line_of_the_log() -> None:
    assert step_line_response(STEP).message == (
        "training: step 3 of 20, loss 1.2560, accuracy 0.5000, 100 tokens, 8.0 s"
    )
    lost = step_line_response(replace(STEP, loss=None, valid_loss=0.5, learning_rate=2e-4))
    assert lost.message == (
        "training: step 3 of 20, accuracy 0.5000, validation loss 0.5000, learning rate 0.0002, "
        "100 tokens, 8.0 s"
    )


@pytest.mark.parametrize(
    ("reward", "deviation", "shown"),
    [
        (0.0, 0.0, "reward 0.00 (all equal: nothing learnt)"),
        (1.0, 0.0, "reward 1.00 (all equal: nothing learnt)"),
        (0.25, 0.4, "reward 0.25"),
    ],
)
def test_first_hour2_u17_graded_answers_show_their_reward(
    reward: float, deviation: float, shown: str
) -> None:
    """The message had the loss, which is around 0 and says little."""
    graded = replace(STEP, loss=0.0, reward=reward, reward_std=deviation)
    assert step_response(graded).message == f"Step 3/20: {shown}"
    assert f"reward {reward:.4f}" in step_line_response(graded).message
