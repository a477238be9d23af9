"""Facts about the open attempt become events of the job."""

from typing import Any

import pytest
from msgspec.structs import replace

from schemas.anomaly import Anomaly, AnomalyRecorded, RecordAnomaly
from schemas.job import AttemptEnded, AttemptStarted, PhaseSet, RecordDraining, RecordUsage
from schemas.reasons import waiting
from schemas.units import HOUR_MS
from services.scheduler.domain.job.attempts import ANOMALIES_MAX
from simulator.control_plane.samples import MINUTE, SCORED, T0, TRAINED
from tests.unit.services.scheduler.domain.job.test_decide import placement_of
from tests.unit.services.scheduler.fold import Decider, names, of
from tests.unit.services.scheduler.lives import JOB_ID, closed, granted, job_of, lived, started


def draining(attempt: int = 1) -> RecordDraining:
    return RecordDraining(job_id=JOB_ID, attempt=attempt)


def phase_of(decider: Decider) -> str:
    job = job_of(decider)
    return "done" if job is None else job.phase


def test_a_grant_of_a_training_is_provisioning_on_its_nodes() -> None:
    decider = lived("queued")
    phase = of(decider.when(granted()), PhaseSet)
    assert (phase.phase, phase.node_ids, phase.reason) == (
        "provisioning",
        ("a",),
        waiting("node_preparation"),
    )


def test_a_grant_of_an_evaluation_stays_evaluating() -> None:
    phase = of(lived("evaluating").when(granted(2)), PhaseSet)
    assert (phase.phase, phase.node_ids) == ("evaluating", ("a",))


def test_a_start_is_running_and_keeps_what_the_process_said() -> None:
    events = lived("provisioning").when(started(total_steps=7))
    begun, phase = of(events, AttemptStarted), of(events, PhaseSet)
    assert (begun.attempt, begun.role, begun.start.total_steps) == (1, "train", 7)
    assert (phase.phase, phase.node_ids, phase.reason) == ("running", ("a",), None)


def test_a_start_of_an_evaluation_is_scoring() -> None:
    decider = lived("evaluating").accept(granted(2))
    phase = of(decider.when(started(2)), PhaseSet)
    assert (phase.phase, phase.reason) == ("evaluating", waiting("scoring"))


def test_a_drain_notice_that_was_faster_than_the_start_stays() -> None:
    decider = lived("provisioning").accept(draining())
    assert phase_of(decider) == "checkpointing"
    assert names(decider.when(started())) == ["AttemptStarted"]
    assert phase_of(decider) == "checkpointing"


def test_an_evaluation_has_nothing_to_write_when_it_drains() -> None:
    decider = lived("evaluating").accept(granted(2), started(2))
    assert decider.when(draining(2)) == ()


@pytest.mark.parametrize(
    ("role", "result", "outcome", "cause"),
    [
        ("train", None, "succeeded", None),
        ("train", SCORED, "failed", "platform"),
        ("eval", None, "succeeded", None),
        ("eval", TRAINED, "failed", "platform"),
    ],
)
def test_a_success_with_the_result_of_the_other_role_is_a_failure_of_the_platform(
    role: Any, result: Any, outcome: str, cause: str | None
) -> None:
    if role == "train":
        decider, attempt = lived("running"), 1
    else:
        decider, attempt = lived("evaluating").accept(granted(2), started(2)), 2
    ended = of(decider.when(closed(attempt, role=role, result=result)), AttemptEnded)
    assert (ended.end.outcome, ended.end.cause) == (outcome, cause)


def test_a_success_that_left_nothing_is_a_failure_of_the_platform_and_is_tried_again() -> None:
    whole = closed()
    events = lived("running").when(replace(whole, end=replace(whole.end, result=None)))
    assert of(events, AttemptEnded).end.cause == "platform"
    assert placement_of(events).attempt == 2


def test_an_end_carries_the_totals_of_the_job() -> None:
    decider = lived("running")
    first = of(decider.when(closed(outcome="lost", billable=3 * MINUTE, lost=MINUTE)), AttemptEnded)
    assert (first.job_billable_gpu_ms, first.job_lost_gpu_ms) == (3 * MINUTE, MINUTE)
    decider.accept(granted(2), started(2))
    second = of(
        decider.when(closed(2, outcome="lost", billable=2 * MINUTE, lost=2 * MINUTE)), AttemptEnded
    )
    assert (second.job_billable_gpu_ms, second.job_lost_gpu_ms) == (5 * MINUTE, 3 * MINUTE)


def test_totals_at_prices_are_stated_only_where_a_job_has_rates_of_its_own() -> None:
    decider = lived("running").accept(
        RecordUsage(job_id=JOB_ID, attempt=1, hour_utc=T0 // HOUR_MS, gpu_ms=MINUTE)
    )
    assert of(decider.when(closed()), AttemptEnded).job_micro_gpu_ms is None


def anomaly(window: int = 0, attempt: int = 1) -> RecordAnomaly:
    seen = Anomaly(kind="stuck", attempt=attempt, window=window, measured_ppm=9, usual_ppm=1)
    return RecordAnomaly(job_id=JOB_ID, anomaly=seen)


def test_an_anomaly_is_recorded_once_for_each_window_however_often_it_is_sent() -> None:
    decider = lived("running")
    assert of(decider.when(anomaly()), AnomalyRecorded).anomaly == anomaly().anomaly
    assert decider.when(anomaly()) == ()
    assert names(decider.when(anomaly(window=60_000))) == ["AnomalyRecorded"]


def test_an_anomaly_of_an_attempt_that_is_not_open_is_no_news() -> None:
    assert lived("running").when(anomaly(attempt=2)) == ()
    assert lived("evaluating").when(anomaly(attempt=1)) == ()
    assert lived("done").when(anomaly(attempt=2)) == ()


def test_a_job_has_so_many_anomalies_and_no_more() -> None:
    decider = lived("running")
    for window in range(ANOMALIES_MAX):
        decider.when(anomaly(window))
    assert decider.when(anomaly(ANOMALIES_MAX)) == ()
