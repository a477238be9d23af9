"""The fold of sweeps: what is remembered of their jobs."""

from schemas.job import CancelJob
from schemas.sweep import SweepCancelled, SweepEnded, SweepRungBegun
from services.scheduler.domain.job.state import EndedRun
from simulator.control_plane.samples import MINUTE, limits, submit
from tests.unit.services.scheduler.domain.job.test_sweeps import finish, sweep
from tests.unit.services.scheduler.lives import TENANT, new_tenant


def test_an_ended_job_leaves_its_loss_and_its_use() -> None:
    decider = new_tenant().accept(limits())
    decider.accept(sweep())
    finish(decider, "ftjob-0-0", 500_000)
    decider.accept(CancelJob(job_id="ftjob-1-0"))
    state = decider.state[TENANT].sweeps["sweep-1"]
    assert state.open_runs == ("ftjob-2-0",)
    first = state.ended_runs["ftjob-0-0"]
    assert first.published_by == "ftjob-0-0"
    assert (first.loss_ppm, first.gpu_ms) == (500_000, 2 * MINUTE)
    assert state.ended_runs["ftjob-1-0"] == EndedRun(
        published_by=None, loss_ppm=None, gpu_ms=0, micro=0
    )


def test_events_of_sweeps_that_are_not_open_change_nothing() -> None:
    decider = new_tenant().accept(limits(), submit("ftjob-other"))
    before = decider.state
    decider.fold(
        SweepCancelled(sweep_id="sweep-x"),
        SweepRungBegun(sweep_id="sweep-x", rung=1, trials=(0,)),
        SweepEnded(sweep_id="sweep-x", outcome="completed", best_job_id=None),
    )
    assert decider.state == before


def test_a_job_of_several_leaves_the_loss_of_each_and_costs_once() -> None:
    decider = new_tenant().accept(limits())
    decider.accept(sweep(4, colocate=2))
    finish(decider, "ftjob-0-0", 450_000, (500_000, 400_000), left=1)
    runs = decider.state[TENANT].sweeps["sweep-1"].ended_runs
    assert sorted(runs) == ["ftjob-0-0", "ftjob-1-0"]
    assert [runs[name].loss_ppm for name in sorted(runs)] == [500_000, 400_000]
    assert [runs[name].gpu_ms for name in sorted(runs)] == [2 * MINUTE, 0]
    assert [runs[name].published_by for name in sorted(runs)] == [None, "ftjob-0-0"]
