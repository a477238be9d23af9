"""Given events of `job`, then rows: a job's life as the API tells it."""

from typing import Any

import pytest
from msgspec.structs import replace

from schemas.admission import (
    BudgetAlert,
    BudgetCounted,
    BudgetRemoved,
    BudgetSet,
    BudgetTerms,
    BudgetThresholdReached,
    BudgetUse,
)
from schemas.job import AttemptEnded, PhaseSet, WantedSet
from schemas.submission import Variant
from services.gateway.jobs.domain.responses import job_response, row_at
from services.gateway.views.projections.jobs import project_budget
from services.gateway.views.tables.accounts import BUDGETS
from services.gateway.views.tables.files import FILES
from services.gateway.views.tables.jobs import JOB_HISTORY, JOBS
from simulator.control_plane.samples import TRAINED
from tests.unit.services.gateway.jobs.job_events import JOB, SPEC, SUBMITTED, WHOLE_LIFE
from tests.unit.services.gateway.view_rows import folded, only, rows
from tests.unit.services.gateway.views.projections.test_files import FILE
from tests.unit.services.scheduler.test_react import HEADER
from tunery.runtime.verbs import Delete, Upsert


def unseal(sealed: Any, _field: str) -> str | None:
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


@pytest.mark.parametrize(
    ("events", "status"),
    [
        ([], "validating_files"),
        ([PhaseSet(job_id=JOB, phase="queued")], "queued"),
        ([PhaseSet(job_id=JOB, phase="provisioning")], "running"),
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
    terms = replace(FILE.terms, purpose="fine-tune-results")
    file = replace(FILE, terms=terms, job_id=JOB)
    tables = folded("dataset", file, records=folded("job", *WHOLE_LIFE))
    assert only(tables, JOBS).result_file == FILE.file_id
    assert only(tables, FILES).status == "processed"
    fields = {row.field: row.value for row in rows(tables, JOB_HISTORY)}
    assert fields["result_file"] == FILE.file_id


def test_a_job_is_what_its_training_has_left() -> None:
    hypers = [replace(SPEC.hyper, rank=rank, seed=rank) for rank in (4, 32)]
    variants = tuple(Variant(run_id=f"r{hyper.rank}", hyper=hyper) for hyper in hypers)
    submitted = replace(SUBMITTED, spec=replace(SPEC, variants=variants))
    ended = next(event for event in WHOLE_LIFE if isinstance(event, AttemptEnded))
    result = replace(TRAINED, variant=1, losses_ppm=(None, 300_000))
    ended = replace(ended, role="train", end=replace(ended.end, result=result))
    row = only(folded("job", submitted, ended), JOBS)
    assert (row.variant, row.losses_ppm) == (1, (None, 300_000))
    shown = job_response(row, unseal)
    assert (shown.seed, shown.hyperparameters.model_dump()["rank"]) == (32, 32)


USE = BudgetUse(used_gpu_ms=1, held_gpu_ms=2, used_micro=3, held_micro=4)


def test_a_budget_is_written_over_and_deleted() -> None:
    header = replace(HEADER, key="acme", at=5)
    terms = BudgetTerms(budget_id="tenant", currency="EUR", max_amount_micro=9)
    (written,) = project_budget(header, BudgetSet(terms=terms))
    assert isinstance(written, Upsert)
    assert (written.values["max_gpu_ms"], written.values["max_amount_micro"]) == (None, 9)
    counted = BudgetCounted(budget_id="tenant", month="2026-11", use=USE)
    alert = BudgetAlert(budget_id="tenant", month="2026-11", percent=50)
    record: dict[str, object] = {**written.key, **written.values}
    for event in (counted, BudgetThresholdReached(alert=alert)):
        (change,) = project_budget(header, event)
        assert isinstance(change, Upsert)
        record |= change.values
    row = BUDGETS.read(record)
    assert row is not None
    assert (row.set_at, row.month, row.use, row.alert) == (5, "2026-11", USE, alert)
    (gone,) = project_budget(header, BudgetRemoved(budget_id="tenant"))
    assert gone == Delete("budgets", {"tenant": "acme", "id": "tenant"})
