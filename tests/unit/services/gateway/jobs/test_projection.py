"""Given events of `job`, then rows: a job's life as the API tells it."""

from typing import Any

import pytest
from msgspec.structs import replace

from schemas.job import Failure, JobEnded, PhaseSet, WaitNoted, WantedSet
from schemas.reasons import skipping, waiting
from schemas.sealed import Sealed
from schemas.training import SkippedCheckpoint
from services.gateway.files.tables import FILES
from services.gateway.jobs.cost_responses import cost_response
from services.gateway.jobs.queue_forecast import Outlook
from services.gateway.jobs.responses import gate_response, job_response, row_at
from services.gateway.jobs.tables import JOB_EVENTS, JOB_HISTORY, JOBS, StepRow, UsageRow
from services.gateway.web.wording import skip_words
from tests.unit.services.gateway.files.test_projection import FILE
from tests.unit.services.gateway.jobs.job_events import (
    HELD,
    JOB,
    SPEC,
    SUBMITTED,
    SUMMARY,
    WHOLE_LIFE,
    placed,
    started,
)
from tests.unit.services.gateway.view_rows import folded, only, rows


def unseal(sealed: Any) -> str | None:
    return None if sealed is None else "opened"


def test_a_whole_life_ends_in_a_job_that_succeeded() -> None:
    tables = folded("job", *WHOLE_LIFE)
    job = job_response(only(tables, JOBS), unseal)
    assert job.status == "succeeded"
    assert job.fine_tuned_model == SPEC.model_id
    assert job.trained_tokens == 36_000
    assert job.finished_at == 1_000 + len(WHOLE_LIFE)
    assert job.progress is not None
    assert job.gate is not None
    assert job.progress.step == job.progress.total_steps == 20
    assert job.progress.resumed_from_step == 6
    assert job.gate.verdict == "pass"
    assert job.gate.adapter.model_dump() == {
        "accuracy": 0.55,
        "loss": 1.5,
        "exact_match": 0.25,
    }
    assert job.cost.billable_gpu_ms == 400_000
    assert job.cost.hold_gpu_ms is None
    assert job.queue is None
    assert job.node is None
    assert job.hyperparameters.n_epochs == 2
    assert job.hyperparameters.learning_rate_multiplier == 1.0


def test_the_messages_come_in_the_order_that_scripts_look_for() -> None:
    texts = [row.message for row in rows(folded("job", *WHOLE_LIFE), JOB_EVENTS)]
    assert texts == [
        f"Created fine-tuning job: {JOB}",
        "Validating training file: file-1",
        texts[2],
        "Files validated, moving job to queued state",
        "Fine-tuning job started",
        "Checkpoint created at step 6",
        "Attempt 1 lost its machine; the job goes on from its last checkpoint, free",
        "Moving job to queued state (attempt 2)",
        "Fine-tuning job resumed from the checkpoint of step 6",
        "Training finished, comparing the new model with its base",
        "Gate: pass; right answers 110 of 200 (base model: 100)",
        f"New fine-tuned model created: {SPEC.model_id}",
        "The job has successfully completed",
    ]
    assert texts[2].startswith("Budget hold taken: at most 0.50 GPU-hours")


def test_checkpoints_that_could_not_be_used_are_named() -> None:
    reason = skipping("blob_corrupt")
    skipped = SkippedCheckpoint(manifest_sha256="cd" * 32, reason=reason)
    events = folded("job", SUBMITTED, HELD, placed(2), started(2, 6, (skipped,)))
    resumed, passed_over = rows(events, JOB_EVENTS)[-2:]
    assert resumed.message == "Fine-tuning job resumed from the checkpoint of step 6"
    assert f"{skipped.manifest_sha256}: {skip_words(reason)}" in passed_over.message
    assert (passed_over.level, passed_over.data) == ("warn", {"skipped": ["cd" * 32]})


@pytest.mark.parametrize(
    ("events", "status"),
    [
        ([], "validating_files"),
        ([PhaseSet(job_id=JOB, phase="queued")], "queued"),
        ([PhaseSet(job_id=JOB, phase="provisioning")], "queued"),
        ([PhaseSet(job_id=JOB, phase="running")], "running"),
        ([PhaseSet(job_id=JOB, phase="checkpointing")], "running"),
        ([PhaseSet(job_id=JOB, phase="evaluating")], "running"),
        ([PhaseSet(job_id=JOB, phase="registering")], "running"),
        ([WantedSet(job_id=JOB, wanted="paused")], "paused"),
        (
            [
                PhaseSet(job_id=JOB, phase="checkpointing"),
                WantedSet(job_id=JOB, wanted="paused"),
            ],
            "running",
        ),
        (
            [
                PhaseSet(job_id=JOB, phase="checkpointing"),
                WantedSet(job_id=JOB, wanted="cancelled"),
            ],
            "cancelled",
        ),
    ],
)
def test_every_phase_has_one_of_openais_statuses(events: list[Any], status: str) -> None:
    tables = folded("job", SUBMITTED, *events)
    assert job_response(only(tables, JOBS), unseal).status == status


def test_auto_is_echoed_until_the_job_runs() -> None:
    early = job_response(only(folded("job", SUBMITTED, HELD), JOBS), unseal)
    assert early.hyperparameters.batch_size == "auto"
    assert early.hyperparameters.n_epochs == 2
    running = PhaseSet(job_id=JOB, phase="running")
    late = job_response(only(folded("job", SUBMITTED, HELD, running), JOBS), unseal)
    assert late.hyperparameters.batch_size == SPEC.hyper.batch_size


def test_a_given_learning_rate_is_shown_as_its_multiple_of_the_rule() -> None:
    doubled = replace(SPEC.hyper, learning_rate_ppb=2 * SPEC.hyper.learning_rate_ppb)
    auto = tuple(name for name in SPEC.auto if name != "learning_rate")
    submitted = replace(SUBMITTED, spec=replace(SPEC, hyper=doubled, auto=auto))
    job = job_response(only(folded("job", submitted, HELD), JOBS), unseal)
    assert job.hyperparameters.learning_rate_multiplier == 2.0


def test_the_history_gives_the_job_as_it_was_at_every_moment() -> None:
    changes = rows(folded("job", *WHOLE_LIFE), JOB_HISTORY)
    for count in range(1, len(WHOLE_LIFE) + 1):
        then = only(folded("job", *WHOLE_LIFE[:count]), JOBS)
        at = 1_000_000 + 1_000 * count  # when `folded` lets the last of them happen
        past = row_at([row for row in changes if row.at <= at], "acme", JOB)
        assert past == then
        assert past is not None
        assert job_response(past, unseal) == job_response(then, unseal)


def test_a_result_file_is_part_of_the_history() -> None:
    file = replace(FILE, purpose="fine-tune-results", job_id=JOB)
    tables = folded("dataset", file, records=folded("job", *WHOLE_LIFE))
    assert only(tables, JOBS).result_file == FILE.file_id
    assert only(tables, FILES).status == "processed"
    fields = {row.field: row.value for row in rows(tables, JOB_HISTORY)}
    assert fields["result_file"] == FILE.file_id


def test_a_wait_has_reason_and_position_until_the_phase_changes() -> None:
    waits = (
        SUBMITTED,
        PhaseSet(job_id=JOB, phase="queued", reason=waiting("placement")),
        WaitNoted(job_id=JOB, reason=waiting("no_capacity", slots=2)),
    )
    outlook = Outlook(position=3, starts_at=5_000)
    job = job_response(only(folded("job", *waits), JOBS), unseal, None, outlook)
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
        learning_rate=None,
        tokens=100,
        at=5_000_000,
    )
    progress = job_response(row, unseal, step).progress
    assert progress is not None
    assert progress.percent == 50.0
    assert progress.train_loss == 1.25
    assert progress.seconds_remaining == 20
    assert job_response(row, unseal, step).estimated_finish == 5_020
    stale = job_response(row, unseal, replace(step, attempt=1)).progress
    assert stale is not None
    assert stale.seconds_remaining is None


def test_a_failure_has_code_message_and_advice() -> None:
    failure = Failure(
        code="diverged",
        message=Sealed(key_id="k", nonce=b"n", ciphertext=b"c"),
        advice="Lower the learning rate.",
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
        "message": "opened Lower the learning rate.",
        "param": None,
    }
    last = rows(tables, JOB_EVENTS)[-1]
    assert last.level == "error"
    assert last.message == "The job failed: diverged. Lower the learning rate."


def test_cost_sums_lines_and_keeps_credits_apart() -> None:
    row = only(folded("job", SUBMITTED, HELD), JOBS)
    usage = UsageRow(
        tenant="acme",
        job_id=JOB,
        id="1",
        at=1,
        attempt=1,
        role="train",
        lane="premium",
        price_version="2026-11",
        hour=1,
        kind="usage",
        used_gpu_ms=90_000,
        billable_gpu_ms=90_000,
        cause=None,
    )
    credit = replace(usage, kind="credit", used_gpu_ms=0, billable_gpu_ms=-30_000)
    lines = [usage, credit]
    cost = cost_response(row, lines)
    assert (cost.billable_gpu_ms, cost.credited_gpu_ms) == (90_000, 30_000)
    assert cost.net_gpu_ms == 60_000
    assert cost.amount_micro == 53_333  # 80_000 - 26_667: each line rounded, as on the invoice


def test_what_was_not_measured_has_no_figure() -> None:
    gate = gate_response(replace(SUMMARY, base_loss_ppm=-1))
    assert gate.base.loss is None
    assert gate.adapter.loss == SUMMARY.adapter_loss_ppm / 1_000_000
