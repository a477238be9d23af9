"""A journal of the pool is a trace, and its decisions are made again."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from services.scheduler.app import POOLS
from services.scheduler.domain.pool import planned_pool
from simulator.control_plane.samples import POOL
from tests.histories.recorder import Recorder
from tests.simulation.scheduling.asks import HOUR, Ask
from tests.simulation.scheduling.pool_world import PoolWorld
from tests.simulation.scheduling.rules import Judge
from tunery.cli.main import main
from tunery.cli.simulate.journals import read_history
from tunery.runtime.tools import archive

HISTORIES = Path(__file__).parents[4] / "histories" / "recorded"


def a_day(world: PoolWorld) -> None:
    """Two nodes, jobs of three lanes, one stopped for another, a lost node, a retry."""
    for number in range(2):
        world.register(number, 4, cuda=True, gigabytes=24, joins=False)
    for number in range(6):
        world.submit(Ask(lane=2, tenant=number % 3, slots=2, hours=10, cuda=True, gigabytes=1))
    for lease in world.books.open_leases():
        world.start(lease)
    world.pass_time(HOUR)
    for lease in world.books.open_leases():
        world.save(lease)
    world.submit(Ask(lane=0, tenant=0, slots=4, hours=1, cuda=True, gigabytes=1))
    world.pass_time(HOUR // 60)
    world.watch(0, silent=True, zone=False)
    world.retry(0)
    world.calm_down()


def export(world: PoolWorld, path: Path) -> None:
    """Write all that the world told its pool as `tunery journal export` does."""
    recorder = Recorder("a day of a pool", POOLS, POOL)
    for at, command in world.commands:
        recorder.at = at
        recorder.when(command, after_ms=0)
    with path.open("wb") as file:
        archive.write(file, "pool", recorder.bounds, recorder.records)


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """A day of a pool, as `tunery journal export` writes it."""
    world = PoolWorld(Judge())
    a_day(world)
    assert world.happened["preempted"] > 0
    assert world.happened["NodeLost"] == 1
    path = tmp_path / "pool.jsonl"
    export(world, path)
    return path


def test_a_journal_is_a_trace_of_its_jobs_and_nodes(journal: Path) -> None:
    with journal.open("rb") as file:
        history = read_history(file)
    assert (history.nodes, history.slots, len(history.jobs)) == (2, 4, 7)
    assert {job.lane for job in history.jobs} == {0, 2}
    assert min(job.submitted_at for job in history.jobs) == 0
    shown = CliRunner().invoke(main, ["simulate", str(journal), "--json"])
    assert json.loads(shown.stdout)["jobs"] == 7


def test_a_journal_says_how_good_its_estimates_were() -> None:
    """Eight jobs take half of what a formula says; the ninth has not ended."""
    taught = HISTORIES / "pool.work_that_teaches_how_long_it_takes.jsonl"
    shown = CliRunner().invoke(main, ["simulate", str(taught), "--estimates", "--json"])
    (row,) = json.loads(shown.stdout)
    assert row["work"].startswith("train ")
    assert row["work"].endswith(" on cpu")
    assert (row["jobs"], row["median_of_estimate_pct"]) == (8, 50)
    assert (row["within_p50_pct"], row["within_p90_pct"]) == (100, 100)


def test_a_trace_without_kinds_of_work_has_no_estimates_to_judge(tmp_path: Path) -> None:
    trace = tmp_path / "jobs.csv"
    trace.write_text("submit_s,duration_s,gpus\n0,10,1\n")
    refused = CliRunner().invoke(main, ["simulate", str(trace), "--estimates"])
    assert refused.exit_code == 1
    assert "it is no journal" in refused.output


def test_the_decisions_of_a_journal_are_made_again(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ["simulate", str(journal), "--decisions", "--json"]
    same = CliRunner().invoke(main, asked)
    report = json.loads(same.stdout)
    assert (same.exit_code, report["different_records"]) == (0, 0)
    assert report["kinds"]["LeaseDraining"] >= 1
    assert report["kinds"]["LeaseGranted"] >= 8
    monkeypatch.setattr(planned_pool, "POLICY", replace(planned_pool.POLICY, preempting=0))
    other = CliRunner().invoke(main, asked)
    report = json.loads(other.stdout)
    assert (other.exit_code, report["different_records"] > 0) == (1, True)
    assert report["first_difference"].startswith("pool/")


def test_planning_that_goes_on_at_a_tick_is_decided_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planned_pool, "POLICY", replace(planned_pool.POLICY, starts_max=1))
    world = PoolWorld(Judge(frozenset()))
    for number in range(4):
        world.submit(Ask(lane=2, tenant=number % 3, slots=1, hours=10, cuda=True, gigabytes=1))
    world.register(0, 4, cuda=True, gigabytes=24, joins=False)
    world.pass_time(HOUR)
    path = tmp_path / "pool.jsonl"
    export(world, path)
    shown = CliRunner().invoke(main, ["simulate", str(path), "--decisions", "--json"])
    report = json.loads(shown.stdout)
    assert (shown.exit_code, report["different_records"]) == (0, 0)
    assert report["kinds"]["LeaseGranted"] == 4
    assert report["kinds"]["PlanningDeferred"] == 2


def test_a_journal_that_is_cut_off_is_refused(journal: Path) -> None:
    whole = journal.read_bytes()
    journal.write_bytes(whole[: whole.rindex(b"\n", 0, -1) + 1])
    for options in ([], ["--decisions"]):
        refused = CliRunner().invoke(main, ["simulate", str(journal), *options])
        assert refused.exit_code == 1
        assert "it was cut off" in refused.output
