"""`tunery gate`: what each command asks the API for."""

from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tests.unit.tunery.cli.scripted_api import ScriptedApi, page

MODEL = "ft:smol:acme:demo:1a2b3c4d"
POLICY = {
    "id": "default",
    "blocking": ["capability", "production"],
    "alpha": 0.05,
    "drop_max": None,
    "gain_min": 0.05,
    "benchmarks": [],
    "refusal_min": 0,
    "looks": [0.25, 0.5, 1],
}
DECIDED = {"quarantined": False, "reason": "poems only", "name": "Ada", "decided_at": 1}
POST_MODEL = f"POST /models/{quote(MODEL, safe='')}/quarantine".replace("%3A", ":")


@pytest.mark.parametrize(
    ("words", "request_line", "body"),
    [
        (["set"], "POST /gate/policies", {}),
        (
            ["set", "smol", "--blocks", "capability", "--blocks", "holdout", "--drop-max", "0.02"],
            "POST /gate/policies",
            {"base_model": "smol", "blocking": ["capability", "holdout"], "drop_max": 0.02},
        ),
        (
            ["set", "--alpha", "0.01", "--gain-min", "0.1"],
            "POST /gate/policies",
            {"alpha": 0.01, "gain_min": 0.1},
        ),
        (
            ["set", "--benchmark", "mmlu", "--blocks", "safety", "--refusal-min", "0.9"],
            "POST /gate/policies",
            {"benchmarks": ["mmlu"], "blocking": ["safety"], "refusal_min": 0.9},
        ),
        (
            ["set", "--look", "0.4", "--look", "1"],
            "POST /gate/policies",
            {"looks": [0.4, 1]},
        ),
        (["list"], "GET /gate/policies", None),
        (["remove", "exam"], "DELETE /gate/benchmarks/exam", None),
        (["reset"], "DELETE /gate/policies/default", None),
        (["reset", "smol"], "DELETE /gate/policies/smol", None),
        (
            ["override", MODEL, "--reason", "poems only", "--name", "Ada"],
            POST_MODEL,
            {"quarantined": False, "reason": "poems only", "name": "Ada"},
        ),
        (
            ["quarantine", MODEL, "--reason", "lies", "--name", "Ada"],
            POST_MODEL,
            {"quarantined": True, "reason": "lies", "name": "Ada"},
        ),
    ],
)
def test_what_is_asked_of_the_api(
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    request_line: str,
    body: dict[str, Any] | None,
) -> None:
    answers = {
        "POST /gate/policies": POLICY,
        "GET /gate/policies": page(POLICY),
        "DELETE /gate/policies/default": {},
        "DELETE /gate/policies/smol": {},
        "DELETE /gate/benchmarks/exam": {},
        POST_MODEL: {"id": MODEL, "quarantined": False, "quarantine": DECIDED},
    }
    api = ScriptedApi(monkeypatch, answers)
    done = api.run("gate", *words)
    assert done.exit_code == 0, done.output
    assert api.asked[-1] == request_line
    if body is not None:
        assert api.bodies[-1] == body


def test_a_policy_is_shown_with_the_refusals_that_it_wants(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = {**POLICY, "refusal_min": 0.9}
    api = ScriptedApi(monkeypatch, {"POST /gate/policies": policy})
    assert "90 %" in api.run("gate", "set", "--refusal-min", "0.9").output


GATE = {
    "verdict": "block",
    "reasons": ["answers are worse"],
    "own_data": "loss 3.67 → 0.08",
    "rule": None,
    "power": None,
    "advice": None,
    "measures": [
        {
            "measure": "token_f1",
            "verdict": "pass",
            "decides": False,
            "rows": 40,
            "base": 0.25,
            "adapter": 0.5,
            "low": 0.2,
            "high": 0.3,
        }
    ],
}


def test_a_verdict_is_shown_with_the_measures_of_the_tenant(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers: dict[str, Any] = {
        f"GET /models/{MODEL}": {"id": MODEL, "job_id": "ftjob-0", "gate_job_id": "ftjob-1"},
        "GET /fine_tuning/jobs/ftjob-1": {"id": "ftjob-1", "gate": GATE},
    }
    api = ScriptedApi(monkeypatch, answers)
    shown = api.run("gate", "show", MODEL).output
    assert "block: answers are worse" in shown
    assert "0.250 → 0.500 on 40 rows, difference +0.200 to +0.300 (reported only)" in shown
    answers["GET /fine_tuning/jobs/ftjob-1"]["gate"] = None
    unjudged = ScriptedApi(monkeypatch, answers).run("gate", "show", MODEL)
    assert (unjudged.exit_code, "has not judged" in unjudged.output) == (1, True)


def test_a_report_is_written_to_its_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    page, file = b"<!doctype html><p>block</p>", tmp_path / "report.html"
    answers = {f"GET /models/{MODEL}/gate/report": httpx.Response(200, content=page)}
    done = ScriptedApi(monkeypatch, answers).run("gate", "report", MODEL, "--output", str(file))
    assert (done.exit_code, file.read_bytes()) == (0, page)
    nowhere = str(tmp_path / "none" / "report.html")
    refused = ScriptedApi(monkeypatch, answers).run("gate", "report", MODEL, "--output", nowhere)
    assert (refused.exit_code, "name another file" in refused.output) == (1, True)
    gone = ScriptedApi(monkeypatch, {}).run("gate", "report", MODEL, "--output", str(file))
    assert gone.exit_code == 1


def test_an_override_says_who_decided_and_why(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {POST_MODEL: {"id": MODEL, "quarantined": False, "quarantine": DECIDED}}
    api = ScriptedApi(monkeypatch, answers)
    shown = api.run("gate", "override", MODEL, "--reason", "poems only", "--name", "Ada").output
    assert "poems only" in shown
    assert "Ada" in shown
    without = api.run("gate", "override", MODEL)
    assert (without.exit_code, "--reason" in without.output) == (2, True)


def test_a_further_run_of_the_gate_names_its_job(monkeypatch: pytest.MonkeyPatch) -> None:
    api = ScriptedApi(monkeypatch, {f"POST /models/{MODEL}/gate": {"id": "ftjob-9"}})
    done = api.run("gate", "run", MODEL)
    assert (done.exit_code, "ftjob-9" in done.output) == (0, True), done.output
