"""What-ifs change the pool or the jobs, and nothing else."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.unit.tunery.cli.simulate.test_trace_player import job
from tunery.cli.main import main
from tunery.cli.simulate.policies import POLICIES
from tunery.cli.simulate.trace_player import play
from tunery.cli.simulate.what_if import QuestionUnclear, Setting, ask

JOBS = [job(1, 1, tenant="a"), job(2, 1, tenant="b"), job(3, 1, tenant="a")]
SETTING = Setting(JOBS, POLICIES["tunery"], nodes=4, slots=8)


def test_nodes_are_added_taken_away_or_counted() -> None:
    counts = {each: ask(SETTING, each).nodes for each in ("nodes=+2", "nodes=-3", "nodes=7")}
    assert counts == {"nodes=+2": 6, "nodes=-3": 1, "nodes=7": 7}


def test_a_tenant_is_doubled() -> None:
    jobs = ask(SETTING, "tenant=a*2").jobs
    assert [each.tenant for each in jobs] == ["a", "b", "a", "a", "a"]
    assert len({each.job_id for each in jobs}) == 5


def test_premium_has_another_cap() -> None:
    capped = ask(SETTING, "premium-cap=8")
    assert capped == replace(SETTING, policy=replace(SETTING.policy, premium_slots_max=8))
    jobs = [job(number, 1, lane=0, tenant=f"t{number}") for number in range(9)]
    free = [job(20 + number, 1, lane=2) for number in range(16)]
    setting = Setting([*free, *jobs], replace(SETTING.policy, preempting=0), nodes=2, slots=8)
    waits = [
        max(each.wait_ms for each in play(each.jobs, each.policy, 2, 8).jobs if each.job.lane == 0)
        for each in (setting, ask(setting, "premium-cap=8"))
    ]
    assert waits[0] < waits[1]


def test_a_policy_with_one_queue_has_no_cap_of_premium() -> None:
    with pytest.raises(QuestionUnclear, match="one queue for all lanes"):
        ask(replace(SETTING, policy=POLICIES["fifo"]), "premium-cap=8")


@pytest.mark.parametrize(
    ("question", "message"),
    [
        ("nodes=-4", "leaves 0 of 4 nodes"),
        ("tenant=c*2", "no tenant 'c', but a, b"),
        ("tenant=a*1000", "from 1 to 100 times"),
        ("more", "is no what-if"),
    ],
)
def test_a_question_that_is_none_is_refused(question: str, message: str) -> None:
    with pytest.raises(QuestionUnclear, match=message):
        ask(SETTING, question)


def test_the_command_shows_each_what_if_beside_the_trace_as_it_is(tmp_path: Path) -> None:
    trace, page = tmp_path / "jobs.csv", tmp_path / "page.html"
    trace.write_text("submit_s,duration_s,gpus,tier\n0,7200,8,free\n1,3600,8,free\n")
    asked = ["simulate", str(trace), "--nodes", "1", "--what-if", "nodes=+1"]
    shown = CliRunner().invoke(main, [*asked, "--json", "--html", str(page)])
    figures = json.loads(shown.stdout)
    assert figures["max_wait_h"] == 2.0
    assert figures["what_if"]["nodes=+1"]["max_wait_h"] == 0
    assert page.read_text().count("<svg") == 3
    table = CliRunner().invoke(main, asked).output
    assert "as it is" in table
    assert "nodes=+1" in table
