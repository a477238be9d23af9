"""A job's row as the API shows it."""

from typing import Any

import pytest
from msgspec.structs import replace

from schemas.envelope import Reason
from schemas.job import JobEnded, JobOutcome, PhaseSet, VerdictRecorded, WaitNoted
from schemas.reasons import Failure, failing, waiting
from schemas.sealed import Sealed
from schemas.training import MethodName
from services.gateway.jobs.domain.bodies import METHODS
from services.gateway.jobs.domain.progress import PERCENT_MAX
from services.gateway.jobs.domain.queue_view import Outlook
from services.gateway.jobs.domain.responses import Moment, job_response, row_at
from services.gateway.views.tables.jobs import JOB_EVENTS, JOBS, JobChangeRow, JobRow, StepRow
from services.gateway.wording import FAILURES
from tests.unit.services.gateway.jobs.job_events import (
    EVAL,
    HELD,
    JOB,
    SPEC,
    SUBMITTED,
    SUMMARY,
    placed,
    started,
)
from tests.unit.services.gateway.view_rows import folded, only, rows
from tunery.cli._job_view import gate_lines

SEALED = Sealed(key_id="k", nonce=b"n", ciphertext=b"c")

DIVERGED = FAILURES["loss_diverged"]


def unseal(sealed: Sealed | None, _field: str) -> str | None:
    return None if sealed is None else "opened"


def job_row(*events: Any) -> JobRow:
    return only(folded("job", SUBMITTED, *events), JOBS)


def test_auto_is_echoed_until_the_job_runs() -> None:
    early = job_response(only(folded("job", SUBMITTED, HELD), JOBS), unseal)
    assert early.hyperparameters.batch_size == "auto"
    assert early.hyperparameters.n_epochs == 2
    running = PhaseSet(job_id=JOB, phase="running")
    late = job_response(only(folded("job", SUBMITTED, HELD, running), JOBS), unseal)
    assert late.hyperparameters.batch_size == SPEC.hyper.batch_size


@pytest.mark.parametrize("outcome", ["succeeded", "failed", "cancelled"])
@pytest.mark.parametrize("method", METHODS)
def test_first_hour2_report_3_an_ended_job_has_numbers_whatever_its_method(
    method: MethodName, outcome: JobOutcome
) -> None:
    """Also one that ended before anything was settled."""
    hyper = replace(SPEC.hyper, method=method)
    submitted = replace(SUBMITTED, spec=replace(SPEC, hyper=hyper))
    row = only(folded("job", submitted), JOBS)
    shown = job_response(replace(row, phase="done", outcome=outcome), unseal).model_dump()
    for figures in (shown["hyperparameters"], shown["method"][method]["hyperparameters"]):
        for name in ("batch_size", "learning_rate_multiplier", "n_epochs"):
            assert isinstance(figures[name], int | float), (name, figures[name])


def test_first_hour_low_an_evaluation_is_no_attempt_of_the_training() -> None:
    """`provenance.attempts` was 2 for a job without any retry."""
    for events, attempts in (((), 1), ((placed(2, EVAL),), 1), ((placed(2), placed(3, EVAL)), 2)):
        job = job_response(job_row(HELD, placed(1), *events), unseal)
        assert job.provenance.attempts == attempts


def test_a_given_learning_rate_is_shown_as_its_multiple_of_the_rule() -> None:
    doubled = replace(SPEC.hyper, learning_rate_ppb=2 * SPEC.hyper.learning_rate_ppb)
    auto = tuple(name for name in SPEC.auto if name != "learning_rate")
    submitted = replace(SUBMITTED, spec=replace(SPEC, hyper=doubled, auto=auto))
    job = job_response(only(folded("job", submitted, HELD), JOBS), unseal)
    assert job.hyperparameters.learning_rate_multiplier == 2.0


def test_first_hour2_report_18_a_model_that_is_served_otherwise_than_it_was_judged_says_so() -> (
    None
):
    """With QLoRA the gate has the base in four bits, and chats and exports have it whole."""
    row = job_row(VerdictRecorded(job_id=JOB, summary=SUMMARY))
    for adaptation in ("lora", "full", "qlora"):
        hyper = replace(row.settled.hyper, adaptation=adaptation)
        gate = job_response(replace(row, spec=replace(row.spec, hyper=hyper)), unseal).gate
        assert gate is not None
        assert (gate.served is not None) == (adaptation == "qlora")
        if gate.served is not None:
            assert "base model in four bits" in gate.served
            (line,) = [text for name, text in gate_lines(gate.model_dump()) if name == "served"]
            assert line == gate.served


def test_a_wait_has_reason_and_position_until_the_phase_changes() -> None:
    waits = (
        SUBMITTED,
        PhaseSet(job_id=JOB, phase="queued", reason=waiting("placement")),
        WaitNoted(job_id=JOB, reason=waiting("no_capacity", slots=2)),
    )
    outlook = Outlook(position=3, earliest=4_001, latest=9_000)
    job = job_response(only(folded("job", *waits), JOBS), unseal, Moment(outlook=outlook))
    assert job.queue is not None
    assert (job.queue.position, job.queue.code, job.queue.eta) == (3, "no_capacity", 5)
    assert job.queue.reason == "Waiting for 2 slots: every node that fits is busy."
    running = PhaseSet(job_id=JOB, phase="running", node_ids=("a",))
    job = job_response(only(folded("job", *waits, running), JOBS), unseal)
    assert (job.queue, job.node) == (None, "a")


def test_progress_is_paced_by_this_attempts_own_steps() -> None:
    running = PhaseSet(job_id=JOB, phase="running", node_ids=("b",))
    row = only(folded("job", SUBMITTED, HELD, placed(2), started(2, 6), running), JOBS)
    step = StepRow(
        tenant="acme",
        job_id=JOB,
        id="ftevent-1",
        step=10,
        total_steps=20,
        attempt=2,
        elapsed_ms=8_000,
        loss=1.25,
        accuracy=None,
        valid_loss=None,
        valid_accuracy=None,
        learning_rate=None,
        tokens=100,
        at=5_000_000,
    )
    progress = job_response(row, unseal, Moment(step=step)).progress
    assert progress is not None
    evaluation_s = HELD.estimate.eval_gpu_ms // 1_000
    assert progress.train_loss == 1.25
    assert progress.seconds_remaining == 20 + evaluation_s
    finish = job_response(row, unseal, Moment(step=step)).estimated_finish
    assert finish == 5_020 + evaluation_s
    stale = job_response(row, unseal, Moment(step=replace(step, attempt=1))).progress
    assert stale is not None
    assert stale.seconds_remaining is None


def test_a_failure_has_code_message_and_advice() -> None:
    failure = Failure(
        code="diverged",
        reason=failing("loss_diverged"),
        detail=Sealed(key_id="k", nonce=b"n", ciphertext=b"c"),
    )
    ended = JobEnded(
        job_id=JOB,
        outcome="failed",
        model_id=None,
        failure=failure,
        trained_tokens=0,
        billable_gpu_ms=0,
        lost_gpu_ms=0,
        released_gpu_ms=0,
        created_at=0,
    )
    tables = folded("job", SUBMITTED, ended)
    job = job_response(only(tables, JOBS), unseal)
    assert job.status == "failed"
    assert job.error is not None
    assert job.error.model_dump() == {
        "code": "diverged",
        "message": f"opened {DIVERGED}",
        "param": None,
    }
    last = rows(tables, JOB_EVENTS)[-1]
    assert last.level == "error"
    assert last.message == f"The job failed: diverged. {DIVERGED}"


def test_a_failure_without_words_names_its_reason() -> None:
    newer = Failure(code="diverged", reason=Reason(code="of_a_newer_writer"), param="n_epochs")
    error = job_response(replace(job_row(), failure=newer), unseal).error
    assert error is not None
    assert (error.message, error.param) == ("of_a_newer_writer", "n_epochs")


def test_a_job_without_steps_is_as_good_as_trained() -> None:
    progress = job_response(replace(job_row(), total_steps=0), unseal).progress
    assert progress is not None
    assert (progress.percent, progress.seconds_remaining) == (PERCENT_MAX, None)


def test_a_credit_above_the_use_costs_nothing() -> None:
    cost = job_response(replace(job_row(), billable_gpu_ms=10, lost_gpu_ms=20), unseal).cost
    assert (cost.billable_gpu_ms, cost.credited_gpu_ms, cost.amount_micro) == (10, 20, 0)


def test_the_hold_is_shown_while_the_job_has_it() -> None:
    row = job_row(HELD)
    assert job_response(row, unseal).cost.hold_gpu_ms == HELD.estimate.hold_gpu_ms
    assert (
        job_response(replace(row, phase="done", outcome="cancelled"), unseal).cost.hold_gpu_ms
        is None
    )
    assert job_response(job_row(), unseal).cost.estimated_amount_micro is None


def test_an_incomplete_history_gives_no_job() -> None:
    late = JobChangeRow(tenant="acme", job_id=JOB, id="1", at=1, field="phase", value="running")
    assert row_at([late], "acme", JOB) is None
    assert row_at([], "acme", JOB) is None


def test_the_method_of_a_job_is_shown_with_its_own_settings() -> None:
    for method in METHODS:
        row = job_row()
        hyper = replace(row.spec.hyper, method=method)
        shown = job_response(replace(row, spec=replace(row.spec, hyper=hyper)), unseal).method
        details = shown.model_dump(exclude_none=True)
        assert details.keys() == {"type", method}
        own = details[method]["hyperparameters"]
        assert ("beta" in own) == (method not in ("supervised", "reward"))
