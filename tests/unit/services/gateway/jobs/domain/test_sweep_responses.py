"""Sweeps as responses: what differs, which job is the best, why others were not submitted."""

from msgspec.structs import replace

from schemas.reasons import refusing
from schemas.submission import Budget, Variant
from services.gateway.jobs.domain.sweep_responses import sweep_response, tried_values
from services.gateway.views.tables.sweeps import SweepRow
from simulator.control_plane.samples import PASSED
from tests.unit.services.gateway.jobs.test_configuration import row as job_row
from tests.unit.services.scheduler.domain.job.test_sweeps import sweep

TERMS = sweep(3, rungs=(10, 20), budget=Budget(max_gpu_ms=5_400_000)).terms
ROW = SweepRow(
    id="sweep-1",
    tenant="t",
    sequence=1,
    command_id="c",
    created_at=5_000,
    terms=TERMS,
    status="running",
)


def test_values_are_those_that_differ() -> None:
    assert tried_values(TERMS) == [{"rank": 2}, {"rank": 3}, {"rank": 4}]


def test_the_best_so_far_is_that_with_the_lowest_loss_of_the_present_rung() -> None:
    jobs = {
        name: job_row(
            name, outcome="succeeded", gate=replace(PASSED, adapter_loss_ppm=loss), model_id="ft:a"
        )
        for name, loss in (("ftjob-0-0", 500_000), ("ftjob-1-0", 400_000), ("ftjob-0-1", 450_000))
    }
    skipped = {"ftjob-2-0": refusing("jobs_at_most", limit=3)}
    shown = sweep_response(ROW, jobs, skipped)
    assert (shown.best_job_id, shown.rungs, shown.max_gpu_hours) == ("ftjob-1-0", [10, 20], 1.5)
    assert sweep_response(replace(ROW, rung=1), jobs, {}).best_job_id == "ftjob-0-1"
    first, last = shown.trials[0].jobs[0], shown.trials[2].jobs[0]
    assert (first.status, first.validation_loss) == ("succeeded", 0.5)
    assert (last.status, last.validation_loss) == (None, None)
    assert last.skipped is not None
    assert last.skipped.startswith("3 jobs are running")
    assert sweep_response(replace(ROW, best_job_id="x"), jobs, {}).best_job_id == "x"


def test_configurations_of_one_job_have_losses_of_their_own_and_one_version() -> None:
    terms = sweep(3, colocate=2).terms
    runs = [runs[0] for runs in terms.trials]
    variants = tuple(Variant(run_id=run.job_id, hyper=run.hyper) for run in runs[1:])
    together = job_row(
        "ftjob-1-0",
        outcome="succeeded",
        gate=replace(PASSED, adapter_loss_ppm=310_000),
        model_id="ft:a",
        variant=1,
        losses_ppm=(None, 300_000),
    )
    together = replace(together, spec=replace(together.spec, variants=variants))
    shown = sweep_response(replace(ROW, terms=terms), {"ftjob-1-0": together}, {})
    jobs = [trial.jobs[0] for trial in shown.trials]
    assert [job.job_id for job in jobs] == ["ftjob-0-0", "ftjob-1-0", "ftjob-1-0"]
    assert [job.validation_loss for job in jobs] == [None, None, 0.3]
    assert [job.fine_tuned_model for job in jobs] == [None, None, "ft:a"]
    assert [job.configurations for job in jobs] == [1, 2, 2]
    assert (shown.colocate, shown.best_job_id) == (2, "ftjob-1-0")
    assert together.settled.hyper == runs[2].hyper
