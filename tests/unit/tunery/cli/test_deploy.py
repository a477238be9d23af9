"""`tunery deploy`: what each command asks the API for, and what it shows."""

import json
from typing import Any
from urllib.parse import quote

import pytest

from tests.unit.tunery.cli.scripted_api import ScriptedApi, page

MODEL, OTHER = "ft:smol:acme:demo:1a2b3c4d", "ft:smol:acme:demo:5e6f7a8b"
NAME = "ft:smol:acme:demo:production"


def path(method: str, noun: str, name: str, rest: str = "") -> str:
    return f"{method} /{noun}/{quote(name, safe='')}{rest}".replace("%3A", ":")


def arm(model: str, role: str, share: float, **changes: Any) -> dict[str, Any]:
    counts = {"answers": 3, "failures": 0, "callers": 2, "prompt_tokens": 9, "answer_ms": 40}
    known = {"model": model, "role": role, "share": share, "completion_tokens": 8, "health": None}
    return {**known, **counts, **changes}


DEPLOYMENT = {
    "id": NAME,
    "stage": "production",
    "series": "smol/demo",
    "model": MODEL,
    "since": 1,
    "serving_pool": "local",
    "versions": [
        arm(MODEL, "first", 90.0, health={"state": "ready", "message": None}),
        arm(OTHER, "second", 10.0, health={"state": "failed", "message": "DoRA"}),
    ],
    "sample_ratio": {"callers": 40, "second": 0, "p_value": 1e-9, "mismatch": True},
}
ANSWERS = {
    path("GET", "models", MODEL): {"id": MODEL, "series": "smol/demo"},
    "GET /deployments": page(DEPLOYMENT),
    path("POST", "models", MODEL, "/deploy"): DEPLOYMENT,
    path("GET", "deployments", NAME): DEPLOYMENT,
    path("DELETE", "deployments", NAME): {"id": NAME, "deleted": True},
}


@pytest.mark.parametrize(
    ("words", "body"),
    [
        ([], {}),
        (["--with", OTHER], {"traffic": {MODEL: 90.0, OTHER: 10.0}}),
        (["--with", OTHER, "--share", "0.05"], {"traffic": {MODEL: 99.95, OTHER: 0.05}}),
        (["--shadow", OTHER], {"shadow": {"model": OTHER, "share": 100.0}}),
        (["--serving-pool", "spool-1"], {"serving_pool": "spool-1"}),
        (["--shadow", OTHER, "--shadow-share", "5"], {"shadow": {"model": OTHER, "share": 5.0}}),
    ],
)
def test_start_asks_for_all_that_shall_hold(
    monkeypatch: pytest.MonkeyPatch, words: list[str], body: dict[str, Any]
) -> None:
    api = ScriptedApi(monkeypatch, ANSWERS)
    done = api.run("deploy", "start", MODEL, *words, "--json")
    assert done.exit_code == 0, done.output
    assert api.bodies[-1] == {"stage": "production", "expected": MODEL, **body}
    assert json.loads(done.output) == DEPLOYMENT


def test_show_tells_health_and_missing_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    api = ScriptedApi(monkeypatch, ANSWERS)
    shown = api.run("deploy", "show", NAME).output
    for text in ("ready", "failed: DoRA", "40 ms each", "answers of a version are missing"):
        assert text in shown
    assert "10 % of callers" in api.run("deploy", "list").output


def test_end_deletes_the_deployment(monkeypatch: pytest.MonkeyPatch) -> None:
    api = ScriptedApi(monkeypatch, ANSWERS)
    assert "deleted" in api.run("deploy", "end", NAME).output
    assert api.asked == [path("DELETE", "deployments", NAME)]


def test_a_share_of_nothing_is_a_usage_error(monkeypatch: pytest.MonkeyPatch) -> None:
    api = ScriptedApi(monkeypatch, ANSWERS)
    for option in ("--share", "--shadow-share"):
        assert api.run("deploy", "start", MODEL, option, "10").exit_code == 2
    assert api.asked == []
