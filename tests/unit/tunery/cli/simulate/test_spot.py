"""Spot machines come and go as a series says."""

import gzip
import json
from itertools import islice
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.unit.tunery.cli.simulate.test_trace_player import HOUR, MINUTE, job
from tunery.cli.main import main
from tunery.cli.simulate.outcome import outcome
from tunery.cli.simulate.policies import POLICIES
from tunery.cli.simulate.spot import SpotScenario, SpotSeries, read_series
from tunery.cli.simulate.trace_player import Played, play
from tunery.cli.simulate.traces import TraceUnreadable
from tunery.plan.spot import KEPT_OFF_MS

# One machine for two hours, none for one, then again.
TWO_HOURS_UP = SpotSeries(((0, 1), (2 * HOUR, 0)), ((0, 900_000), (HOUR, 600_000)), 3 * HOUR)


def played(*hours: int, notice_ms: int = 120_000, nodes: int = 1, spot: int = 1) -> Played:
    jobs = [job(number, each) for number, each in enumerate(hours)]
    return play(
        jobs, POLICIES["tunery"], nodes, 1, spot=SpotScenario(TWO_HOURS_UP, spot, notice_ms)
    )


def test_a_series_is_read_from_json_with_prices(tmp_path: Path) -> None:
    file = tmp_path / "zone.json.gz"
    series = {"metadata": {"gap_seconds": 60}, "data": [0, 2, 2, 1], "prices": [0.918] * 4}
    file.write_bytes(gzip.compress(json.dumps(series).encode()))
    assert read_series(file) == SpotSeries(
        ((0, 0), (MINUTE, 2), (3 * MINUTE, 1)), ((0, 918_000),), 4 * MINUTE
    )


def test_a_series_is_read_from_csv(tmp_path: Path) -> None:
    file = tmp_path / "zone.csv"
    file.write_text("0,0\n60,4\n60,12\n120,7\n")
    assert read_series(file) == SpotSeries(((0, 0), (MINUTE, 12), (2 * MINUTE, 7)), (), 2 * MINUTE)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "a,b\n",
        "5,1\n3,1\n",
        "0,1\n",
        "0,-1\n9,2\n",
        "0,1,2\n",
        '{"data": [1]}',
        '{"metadata": {"gap_seconds": 60}, "data": []}',
        '{"metadata": {"gap_seconds": 0}, "data": [1]}',
        '{"metadata": {"gap_seconds": 60}, "data": [0, 0]}',
    ],
)
def test_a_file_that_is_no_series_is_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "zone"
    file.write_text(text)
    with pytest.raises(TraceUnreadable, match=r"no series of spot machines|there is no machine"):
        read_series(file)


def test_a_series_goes_on_from_its_beginning_and_is_scaled_to_the_nodes() -> None:
    scenario = SpotScenario(TWO_HOURS_UP, 10)
    assert [*islice(scenario.changes(), 4)] == [
        (0, 10),
        (2 * HOUR, 0),
        (3 * HOUR, 10),
        (5 * HOUR, 0),
    ]
    quarter = SpotSeries(((0, 1), (HOUR, 4)), (), 2 * HOUR)
    assert [*islice(SpotScenario(quarter, 10).changes(), 2)] == [(0, 2), (HOUR, 10)]


def test_a_machine_costs_what_the_series_says_while_it_is_there() -> None:
    scenario = SpotScenario(TWO_HOURS_UP, 1)
    assert scenario.price_micro(0, HOUR) == 900_000
    assert scenario.price_micro(HOUR // 2, 2 * HOUR) == 450_000 + 600_000
    assert scenario.price_micro(3 * HOUR, 4 * HOUR) == 900_000, "the next round"
    assert scenario.price_micro(0, 6 * HOUR) == 2 * (900_000 + 2 * 600_000)


def test_a_noticed_job_saves_its_work_and_goes_on_when_a_machine_comes() -> None:
    (done,) = played(3).jobs
    assert (len(done.interrupted_at), done.preemptions) == (1, 0)
    worked = 2 * HOUR - 2 * MINUTE
    assert done.lost_ms == 3 * MINUTE, "a new start"
    assert done.ends_at == 3 * HOUR + 3 * MINUTE + 3 * HOUR - worked


@pytest.mark.parametrize("notice_ms", [0, 29_000])
def test_without_time_to_save_it_loses_what_it_did_since_its_checkpoint(notice_ms: int) -> None:
    series = SpotSeries(((0, 1), (105 * MINUTE, 0)), (), 3 * HOUR)
    spot = SpotScenario(series, 1, notice_ms)
    (done,) = play([job(0, 3)], POLICIES["tunery"], 1, 1, spot=spot).jobs
    assert len(done.interrupted_at) == 1
    assert done.lost_ms == 5 * MINUTE + 3 * MINUTE
    assert done.ends_at == 3 * HOUR + 3 * MINUTE + 80 * MINUTE


def test_jobs_have_spot_nodes_first_until_they_have_lost_two_of_them() -> None:
    series = SpotSeries(((0, 1), (HOUR // 2, 0), (HOUR, 1), (90 * MINUTE, 0)), (), 9 * HOUR)
    both = play([job(0, 6)], POLICIES["tunery"], 2, 1, spot=SpotScenario(series, 1))
    (done,) = both.jobs
    assert len(done.interrupted_at) == 1, "it went on at once on the other node"
    assert done.ends_at == HOUR // 2 + 6 * HOUR - HOUR // 2 + 2 * MINUTE - 2 * MINUTE + 3 * MINUTE
    pair = [job(0, 6), job(1, 6, at=1)]
    played_pair = play(pair, POLICIES["tunery"], 2, 1, spot=SpotScenario(series, 1))
    first, second = played_pair.jobs
    assert [len(first.interrupted_at), len(second.interrupted_at)] == [2, 0]
    assert first.ends_at > second.ends_at, "it waits for the node that stays"


def test_a_job_that_waits_may_have_spot_nodes_again_four_hours_after_its_losses() -> None:
    """The job waited ten hours for the on-demand node, until that was free."""
    losses = ((0, 1), (HOUR // 2, 0), (HOUR, 1), (90 * MINUTE, 0), (2 * HOUR, 1))
    spot = SpotScenario(SpotSeries(losses, (), 99 * HOUR), 1)
    pair = [job(0, 6), job(1, 20, at=1)]
    first, second = play(pair, POLICIES["tunery"], 2, 1, spot=spot).jobs
    assert [len(first.interrupted_at), len(second.interrupted_at)] == [2, 0]
    again_at = first.interrupted_at[-1] + KEPT_OFF_MS
    assert again_at < first.ends_at < again_at + 6 * HOUR < second.ends_at


def test_a_job_that_never_gets_further_is_left_out() -> None:
    """The job writes no checkpoint in its two hours, and its machine goes before their end."""
    jobs = [job(0, 2), job(1, 1, at=4 * HOUR)]
    short = SpotSeries(((0, 1), (8 * MINUTE, 0)), (), HOUR)
    ended = play(jobs, POLICIES["tunery"], 1, 1, spot=SpotScenario(short, 1, 0))
    assert (ended.unfinished, ended.jobs) == (2, [])


def test_figures_have_interruptions_hours_and_costs() -> None:
    figures = outcome(played(3), 1)
    assert (figures["interruptions"], figures["spot_nodes_lost"]) == (1, 1)
    assert figures["spot_node_hours"] == pytest.approx(3 + 5 / 60, abs=0.001)
    assert figures["spot_node_cost"] == 2.45
    used = 100 * 3 / figures["spot_node_hours"]
    assert figures["utilisation_pct"] == pytest.approx(used, abs=0.1)


def test_simulate_plays_a_part_of_the_pool_on_spot_machines(tmp_path: Path) -> None:
    trace, zone = tmp_path / "jobs.csv", tmp_path / "zone.csv"
    trace.write_text("submit_s,duration_s,gpus\n0,10800,1\n0,600,1\n")
    zone.write_text("0,2\n3600,0\n7200,2\n86400,2\n")
    asked = ["simulate", str(trace), "--nodes", "2", "--gpus-per-node", "1", "--spot", str(zone)]
    shown = CliRunner().invoke(main, [*asked, "--spot-nodes", "2", "--json"])
    assert json.loads(shown.stdout)["interruptions"] == 1
    refused = CliRunner().invoke(main, [*asked, "--spot-nodes", "3"])
    assert (refused.exit_code, "the pool has 2 nodes" in refused.output) == (1, True)
    zone.write_text("nothing")
    refused = CliRunner().invoke(main, asked)
    assert (refused.exit_code, "no series of spot machines" in refused.output) == (1, True)
