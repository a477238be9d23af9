"""The fields of a job that a person sees."""

from typing import Any

import pytest

from tunery.cli._job_view import engine_line, job_fields

JOB: dict[str, Any] = {
    "id": "ftjob-1",
    "status": "queued",
    "phase": "queued",
    "model": "smollm2",
    "fine_tuned_model": None,
    "node": None,
    "progress": None,
    "queue": {"reason": "waiting for 1 slot", "position": 2, "lane": "free"},
    "gate": None,
    "cost": {"amount_micro": 0, "amount_max_micro": 1_600_000, "currency": "EUR"},
    "error": None,
}


def shown(job: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in job_fields(job) if value is not None}


def test_queued_job_says_what_it_waits_for() -> None:
    fields = shown(JOB)
    assert fields["waiting"] == "waiting for 1 slot"
    assert fields["position"] == "2 in the lane free"
    assert fields["at most"] == "1.6000 EUR"
    assert "loss" not in fields


@pytest.mark.parametrize(
    ("status", "phase", "said"),
    [
        ("queued", "queued", "queued"),
        ("running", "provisioning", "running (provisioning)"),
        ("running", "evaluating", "running (evaluating)"),
        ("failed", "done", "failed"),
    ],
)
def test_first_hour_low_a_phase_is_shown_if_it_adds_to_the_status(
    status: str, phase: str, said: str
) -> None:
    """The view had `queued (queued)` and `succeeded (done)`."""
    assert shown({**JOB, "status": status, "phase": phase})["status"] == said


def test_running_job_shows_step_loss_and_time() -> None:
    progress = {"step": 3, "total_steps": 9, "train_loss": 1.5, "seconds_remaining": 125}
    progress |= {"percent": 31.4}
    fields = shown({**JOB, "queue": None, "progress": progress})
    assert fields["progress"] == "step 3 of 9, 31 % of the job"
    assert (fields["loss"], fields["left"]) == ("1.5000", "about 2 min 5 s, evaluation included")
    assert "waiting" not in fields


def test_configurations_that_take_turns_are_listed_with_their_losses() -> None:
    own = {"variant": 0, "values": {"rank": 4, "learning_rate": 2e-3}}
    fields = shown({**JOB, "variants": [own | {"validation_loss": None, "chosen": False}]})
    assert fields["configuration 0"] == "rank 4, learning_rate 0.002"
    fields = shown({**JOB, "variants": [own | {"validation_loss": 0.25, "chosen": True}]})
    said = "rank 4, learning_rate 0.002: validation loss 0.2500, which is the result"
    assert fields["configuration 0"] == said


def test_ended_job_shows_verdict_and_error() -> None:
    gate = {"verdict": "block", "reasons": ["-12.0 points", "p = 0.001"]}
    error = {"code": "gate_blocked", "message": "The gate blocked the model."}
    fields = shown({**JOB, "queue": None, "gate": gate, "error": error})
    assert fields["gate"] == "block: -12.0 points; p = 0.001"
    assert fields["error"] == "gate_blocked: The gate blocked the model."


def test_first_hour_15_a_job_shows_what_got_better_on_the_own_rows() -> None:
    gate = {
        "verdict": "pass",
        "reasons": ["+1.0 points"],
        "own_data": "loss 3.67 → 0.08",
        "advice": None,
    }
    assert shown({**JOB, "queue": None, "gate": gate})["own data"] == "loss 3.67 → 0.08"


def test_an_estimate_shows_the_engine_and_that_it_has_not_run_on_such_devices() -> None:
    engine: dict[str, Any] = {
        "name": "fsdp2",
        "weights": "sharded",
        "reason": "all weights are trained",
        "experimental": True,
        "ran_on": ["cpu"],
    }
    text = "fsdp2, weights sharded: all weights are trained"
    assert engine_line(engine) == f"{text}; experimental: ran on cpu only"
    assert engine_line(engine | {"experimental": False}) == text
    assert engine_line(None) is None, "a server from before there were several"
