"""Parameters, figures and summary of a job, as every mirror shows them."""

from tests.unit.tunery.mirrors.jobs import JOB_ID, job, step
from tunery.mirrors.figures import parameters, step_figures, summary


def test_parameters_have_the_settings_of_the_method_and_leave_out_what_is_not_set() -> None:
    assert parameters(job()) == {
        "job_id": JOB_ID,
        "model": "tiny",
        "base_model": "tiny@sha256:ab",
        "method": "dpo",
        "training_file": "file-1",
        "dataset_version": "v1",
        "configuration": "c0",
        "suffix": "demo",
        "metadata": '{"team": "search"}',
        "seed": 7,
        "n_epochs": 2,
        "batch_size": 4,
        "target_modules": '["q", "v"]',
        "beta": 0.1,
    }


def test_parameters_leave_out_what_is_only_known_when_the_job_runs() -> None:
    waiting = job(method={"type": "supervised", "supervised": None})
    assert "batch_size" not in parameters(waiting)


def test_the_figures_of_a_step_are_finite() -> None:
    figures = step_figures(step(2, train_loss=None, tokens_per_second=float("nan")))
    assert figures == {
        "training/learning_rate": 0.001,
        "training/tokens": 200.0,
        "training/elapsed_ms": 10.0,
        "training/attempt": 1.0,
        "train/reward_margin": 0.5,
    }
    assert step_figures(step(1, valid_loss=1.5))["valid/loss"] == 1.5


def test_a_summary_has_outcome_verdict_model_and_cost() -> None:
    assert summary(job()) == {
        "status": "succeeded",
        "fine_tuned_model": "ft:tiny:acme:demo:1",
        "trained_tokens": 300,
        "billable_gpu_ms": 5_000,
        "cost_micro": 1_250,
        "currency": "EUR",
        "gate": "pass",
        "gate_reasons": "No worse.; Better on own data.",
        "gate_base_accuracy": 0.25,
        "gate_base_loss": 2.5,
        "gate_adapter_accuracy": 0.5,
        "gate_adapter_loss": 1.5,
    }


def test_a_summary_of_a_failed_job_names_the_error() -> None:
    failed = job(status="failed", gate=None, error={"code": "bad_rows"}, fine_tuned_model=None)
    assert summary(failed)["error"] == "bad_rows"
    assert "gate" not in summary(failed)
