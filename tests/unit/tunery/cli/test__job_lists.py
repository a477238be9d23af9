"""Many jobs in a terminal, and the figures of one."""

import csv
import io
import json
from typing import Any

import pytest

from tests.unit.tunery.cli.scripted_api import ENVIRON, ScriptedApi, page
from tunery.cli._job_lists import COMPARED_MAX, compared

COST = {"amount_micro": 42_323, "currency": "EUR", "billable_gpu_ms": 47_614}
SCORES = {"base": {"accuracy": 0.6, "loss": 3.67}, "adapter": {"accuracy": 0.58, "loss": 0.08}}


def job(job_id: str, **changes: Any) -> dict[str, Any]:
    return {
        "id": job_id,
        "status": "succeeded",
        "model": "smol",
        "progress": {"percent": 100.0, "train_loss": 0.71},
        "fine_tuned_model": f"ft:smol:acme::{job_id}",
        "error": None,
        "cost": COST,
        "created_at": 1,
        "organization_id": "acme",
        "hyperparameters": {"n_epochs": 3, "rank": 8},
        "gate": {"verdict": "pass", **SCORES},
        **changes,
    }


def test_first_hour_filters_are_those_of_the_api(monkeypatch: pytest.MonkeyPatch) -> None:
    api = ScriptedApi(monkeypatch, {"GET /fine_tuning/jobs": page(job("ftjob-1"))})
    words = ("--status", "succeeded", "--suffix", "a b", "--metadata", "team=search=1")
    done = api.run("job", "list", *words, "--metadata", "env=", "--tenant", "acme")
    assert done.exit_code == 0, done.output
    assert dict(api.requests[0].url.params) == {
        "limit": "21",
        "status": "succeeded",
        "suffix": "a b",
        "metadata[team]": "search=1",
        "metadata[env]": "",
        "tenant": "acme",
    }
    assert api.run("job", "list", "--metadata", "team").exit_code == 2
    assert api.run("job", "list", "--tag", "night", "--tag", "v2").exit_code == 0
    assert api.requests[-1].url.params.get_list("tags") == ["night", "v2"]


def test_first_hour_a_list_of_jobs_has_costs_and_says_that_there_are_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    jobs = page(job("ftjob-1"), job("ftjob-2"))
    api = ScriptedApi(monkeypatch, {"GET /fine_tuning/jobs": jobs})
    both = api.run("job", "list", "--limit", "2").output
    assert both.splitlines()[1].split()[:7] == [
        *("ftjob-1", "succeeded", "smol", "100", "%"),
        *("ft:smol:acme::ftjob-1", "0.0423"),
    ]
    assert "There are more" not in both
    newest = api.run("job", "list", "--limit", "1").output
    assert ("ftjob-2" in newest, "There are more; --limit 5" in newest) == (False, True)


def test_first_hour_10_ids_are_whole_at_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    job_id = "ftjob-bea67270c641a5a668e3a8bd"
    monkeypatch.setattr("tunery.cli._api.interactive", lambda: True)
    monkeypatch.setattr("tests.unit.tunery.cli.scripted_api.ENVIRON", {**ENVIRON, "COLUMNS": "80"})
    api = ScriptedApi(monkeypatch, {"GET /fine_tuning/jobs": page(job(job_id))})
    lines = api.run("job", "list").output.splitlines()
    assert any(line.startswith(job_id) for line in lines)
    assert max(map(len, lines)) <= 80


def test_first_hour_05_operators_see_the_newest_jobs_of_all_tenants(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tenants = page({"id": "acme", "name": None}, {"id": "lab", "name": None})
    jobs = [page(job("ftjob-1")), page(job("ftjob-2", created_at=9, organization_id="lab"))]
    api = ScriptedApi(monkeypatch, {"GET /tenants": tenants, "GET /fine_tuning/jobs": jobs})
    lines = api.run("job", "list", "--all-tenants", "--status", "failed").output.splitlines()[1:]
    assert [(line.split()[0], line.split()[-1]) for line in lines] == [
        ("ftjob-2", "lab"),
        ("ftjob-1", "acme"),
    ]
    asked = [request.url.params.get("tenant") for request in api.requests]
    assert asked == [None, "acme", "lab"]
    assert api.requests[1].url.params["status"] == "failed"


STEPS = [
    {
        "id": f"ftevent-{step}",
        "step": step,
        "total_steps": 2,
        "train_loss": 3.5 / step,
        "train_mean_token_accuracy": None,
        "valid_loss": None,
        "learning_rate": 0.0002,
        "tokens": 100,
        "elapsed_ms": 1_500,
    }
    for step in (2, 1)
]


def test_first_hour_23_metrics_are_shown_from_the_first_step_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    api = ScriptedApi(monkeypatch, {"GET /fine_tuning/jobs/ftjob-1/metrics": page(*STEPS)})
    lines = api.run("job", "metrics", "ftjob-1").output.splitlines()[1:]
    assert [line.split()[:4] for line in lines] == [
        ["1", "of", "2", "3.5"],
        ["2", "of", "2", "1.75"],
    ]
    rows = list(csv.DictReader(io.StringIO(api.run("job", "metrics", "ftjob-1", "--csv").output)))
    assert [(row["step"], row["train_loss"], row["valid_loss"]) for row in rows] == [
        ("1", "3.5", ""),
        ("2", "1.75", ""),
    ]


def test_first_hour_23_answers_before_and_after(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = {"prompt": "Who are you?", "base": "A model.", "adapter": "Ahoy!"}
    api = ScriptedApi(monkeypatch, {"GET /fine_tuning/jobs/ftjob-1/answers": {"data": [pair]}})
    shown = [
        line.split(maxsplit=1) for line in api.run("job", "answers", "ftjob-1").output.splitlines()
    ]
    assert shown[:3] == [["prompt", "Who are you?"], ["before", "A model."], ["after", "Ahoy!"]]
    assert json.loads(api.run("job", "answers", "ftjob-1", "--json").output) == [pair]


def completion(text: str) -> dict[str, Any]:
    return {"choices": [{"message": {"role": "assistant", "content": text}}]}


def test_first_hour_23_a_job_that_has_ended_answers_prompts_of_ones_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Prompts could only be named when the job was submitted."""
    answers = {
        "GET /fine_tuning/jobs/ftjob-1": job("ftjob-1", model="tiny", fine_tuned_model="ft:tiny"),
        "POST /chat/completions": [completion("A model."), completion("Ahoy!")],
    }
    api = ScriptedApi(monkeypatch, answers)
    done = api.run("job", "answers", "ftjob-1", "--prompt", "Who are you?", "--json")
    assert json.loads(done.output) == [
        {"prompt": "Who are you?", "base": "A model.", "adapter": "Ahoy!"}
    ]
    asked = [body for body in api.bodies if body]
    assert [body["model"] for body in asked] == ["tiny", "ft:tiny"]
    assert {body["temperature"] for body in asked} == {0}


def test_a_job_without_a_model_answers_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    unfinished = job("ftjob-1", status="running", fine_tuned_model=None)
    api = ScriptedApi(monkeypatch, {"GET /fine_tuning/jobs/ftjob-1": unfinished})
    done = api.run("job", "answers", "ftjob-1", "--prompt", "Who?")
    assert (done.exit_code, api.asked) == (1, ["GET /fine_tuning/jobs/ftjob-1"])
    assert "tunery job watch ftjob-1" in done.output


def test_first_hour_s07_jobs_are_compared_by_what_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    other = job("ftjob-2", hyperparameters={"n_epochs": 3, "rank": 16}, gate=None)
    api = ScriptedApi(
        monkeypatch,
        {"GET /fine_tuning/jobs/ftjob-1": job("ftjob-1"), "GET /fine_tuning/jobs/ftjob-2": other},
    )
    lines = api.run("job", "compare", "ftjob-1", "ftjob-2").output.splitlines()
    assert lines[0].split() == ["ftjob-1", "ftjob-2"]
    assert ["rank", "8", "16"] in [line.split() for line in lines]
    assert not any(line.startswith(("epochs", "model", "cost")) for line in lines)
    every = api.run("job", "compare", "ftjob-1", "ftjob-2", "--all").output
    assert ["epochs", "3", "3"] in [line.split() for line in every.splitlines()]
    too_many = [f"ftjob-{number}" for number in range(COMPARED_MAX + 1)]
    assert api.run("job", "compare", *too_many).exit_code == 2


def test_first_hour_s07_what_a_job_does_not_have_yet_is_empty() -> None:
    rows = {row["name"]: row["values"] for row in compared([job("a", gate=None, progress=None)])}
    assert (rows["gate"], rows["right answers"], rows["train loss"]) == ([None], [None], [None])
    assert (rows["cost"], rows["GPU time"]) == (["0.0423 EUR"], ["0:00:47.614"])
