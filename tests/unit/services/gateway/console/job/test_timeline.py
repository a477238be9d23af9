"""Attempts of a job by its messages: waits, a kill, a resume, an evaluation."""

from typing import Any

from msgspec.structs import asdict

from schemas.anomaly import Anomaly
from services.gateway.console.job.timeline import timeline


def message(at: int, text: str, **data: Any) -> dict[str, Any]:
    return {"created_at": at, "message": text, "details": data}


KILLED = [
    message(0, "Created fine-tuning job: ftjob-1"),
    message(10, "Files validated, moving job to queued state", attempt=1),
    message(20, "Fine-tuning job started", attempt=1, loaded_step=0),
    message(30, "Checkpoint created at step 5", step=5),
    message(40, "Attempt 1 lost its machine", attempt=1, outcome="lost", cause="lost"),
    message(40, "Moving job to queued state (attempt 2)", attempt=2),
    message(50, "Fine-tuning job resumed from step 5", attempt=2, loaded_step=5),
    message(60, "Training finished, comparing the new model with its base", attempt=3),
    message(61, "Evaluation started", attempt=3, loaded_step=0),
    message(80, "The job has successfully completed"),
]


def test_a_killed_attempt_and_what_came_after_it() -> None:
    shown = timeline(KILLED, now=1_000)
    assert shown is not None
    killed, resumed, evaluation = shown.attempts
    assert (killed.queued, killed.started, killed.ended) == (10, 20, 40)
    assert (killed.checkpoints, killed.ending) == ([30], "lost its machine")
    assert (resumed.loaded_step, resumed.ended, resumed.ending) == (5, 60, None)
    assert (evaluation.is_evaluation, evaluation.ended) == (True, 80)
    assert (shown.begin, shown.end) == (10, 80)
    assert (shown.position(10), shown.position(45), shown.width(20, 40)) == (
        "0.00%",
        "50.00%",
        "28.57%",
    )


def test_an_attempt_that_runs_reaches_to_now() -> None:
    shown = timeline(KILLED[:3], now=100)
    assert shown is not None
    assert shown.attempts[0].ended is None
    assert shown.end == 100


def test_a_warning_of_an_attempt_is_no_other_attempt() -> None:
    anomaly = asdict(
        Anomaly(kind="stuck", attempt=1, window=0, measured_ppm=9_000_000, usual_ppm=1)
    )
    shown = timeline([*KILLED[:3], message(25, "Attempt 1 is stuck", **anomaly)], now=100)
    assert shown is not None
    assert [attempt.started for attempt in shown.attempts] == [20]


def test_a_job_that_was_never_queued_has_no_timeline() -> None:
    assert timeline(KILLED[:1], now=100) is None
