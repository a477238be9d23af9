"""A job as its run in MLflow shows it, and its retries."""

from msgspec.structs import replace

from schemas.units import DAY_MS, HOUR_MS
from services.notifier.domain.mirrored import (
    DELAY_MS_MAX,
    FIRST_DELAY_MS,
    TRIES_MAX,
    delay_ms,
    job_document,
    step_document,
)
from tests.unit.services.gateway.jobs.job_events import SUBMITTED
from tests.unit.services.notifier.test_mirroring import END, step
from tunery.mirrors.figures import parameters, step_figures, summary


def test_pauses_grow_to_a_limit_and_tries_last_three_days() -> None:
    pauses = [delay_ms(number) for number in range(1, TRIES_MAX)]
    assert pauses[0] == FIRST_DELAY_MS
    assert pauses[-1] == max(pauses) == DELAY_MS_MAX
    assert 3 * DAY_MS - 2 * HOUR_MS < sum(pauses) < 3 * DAY_MS + 2 * HOUR_MS


def test_an_hour_without_the_server_costs_a_dozen_tries() -> None:
    pauses = [delay_ms(number) for number in range(1, 13)]
    assert sum(pauses) > HOUR_MS


def test_a_job_has_its_parameters_before_it_runs_and_its_outcome_at_its_end() -> None:
    running = job_document(SUBMITTED, 5_000, "faq", None, None)
    shown = parameters(running)
    assert (shown["job_id"], shown["suffix"], shown["n_epochs"]) == ("ftjob-1", "faq", 2)
    assert shown["training_file"] == "file-1"
    ended = summary(job_document(SUBMITTED, 5_000, None, END, 9_000))
    assert (ended["status"], ended["trained_tokens"]) == ("succeeded", 300)
    assert "cost_micro" not in ended


def test_figures_of_telemetry_have_the_names_of_mirrors() -> None:
    graded = replace(step(2), reward=0.5, reward_std=0.1, valid_accuracy=0.75, memory_bytes=7)
    figures = step_figures(step_document(graded, 5_000))
    assert figures["train/loss"] == 1.0
    assert figures["train/mean_token_accuracy"] == 0.5
    assert figures["train/reward_mean"] == 0.5
    assert figures["valid/mean_token_accuracy"] == 0.75
    assert figures["training/peak_memory_bytes"] == 7
    assert figures["training/tokens_per_second"] == 50
    assert figures["training/attempt"] == 1
