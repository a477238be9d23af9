"""`tunery suggest`, over an API whose answers are written down."""

import json
from typing import Any

import pytest

from tests.unit.tunery.cli.scripted_api import ScriptedApi
from tests.unit.tunery.plan.test_suggestion import REPORT

ESTIMATE: dict[str, Any] = {
    "model": "tiny",
    "steps": 100,
    "amount_micro": 200_000,
    "amount_max_micro": 400_000,
    "currency": "EUR",
    "estimation_available": False,
    "unavailable_reason": "no node is there",
}
PLAN = {
    "estimate": ESTIMATE,
    "refusals": [],
    "settings": [
        {"name": "n_epochs", "value": 3, "source": "rule", "path": None, "why": "100 steps"},
        {"name": "rank", "value": 16, "source": "default", "path": None, "why": "enough"},
    ],
}
ANSWERS: dict[str, Any] = {
    "GET /files/file-1/validation": {"dialect": "dpo", "rows": 200, "report": REPORT},
    "GET /bases": {"data": [{"id": "tiny", "parameters": 2_000_000_000}]},
    "POST /fine_tuning/jobs/plan": PLAN,
}


def test_exit_kit_it_says_method_base_settings_and_the_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    api = ScriptedApi(monkeypatch, ANSWERS)
    answer = json.loads(api.run("suggest", "file-1", "--json").stdout)
    assert (answer["method"], answer["model"]) == ("dpo", "tiny")
    assert [setting["name"] for setting in answer["settings"]] == ["n_epochs"]
    assert answer["command"] == "tunery job submit --file file-1 --method dpo --model tiny"
    asked = {"training_file": "file-1", "method": {"type": "dpo"}, "model": "tiny"}
    assert answer["request"] == api.bodies[-1] == asked


def test_exit_kit_without_a_base_within_the_budget_it_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    api = ScriptedApi(monkeypatch, ANSWERS)
    done = api.run("suggest", "file-1", "--budget", "0.1")
    assert done.exit_code == 1
    assert "about 0.20 EUR, above the budget" in done.output
    assert "tunery job submit" not in done.output


def test_bases_f7_reasoning_that_a_template_leaves_out_is_dropped_and_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    validation = {
        **ANSWERS["GET /files/file-1/validation"],
        "tokens": [{"base_id": "tiny", "reasoning": "drop"}],
    }
    api = ScriptedApi(monkeypatch, {**ANSWERS, "GET /files/file-1/validation": validation})
    answer = json.loads(api.run("suggest", "file-1", "--json").stdout)
    assert answer["request"] == api.bodies[-1]
    assert answer["request"]["training"] == {"reasoning": "drop"}
    assert answer["command"].endswith("--model tiny --set training.reasoning=drop")
    assert "leaves reasoning out" in answer["risks"][-1]["risk"]
