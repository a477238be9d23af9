"""`tunery gate`: what each command asks the API for."""

from typing import Any
from urllib.parse import quote

import pytest

from tests.unit.tunery.cli.scripted_api import ScriptedApi, page

MODEL = "ft:smol:acme:demo:1a2b3c4d"
POLICY = {
    "id": "default",
    "blocking": ["capability", "production"],
    "alpha": 0.05,
    "drop_max": None,
    "gain_min": 0.05,
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
        (["list"], "GET /gate/policies", None),
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
        POST_MODEL: {"id": MODEL, "quarantined": False, "quarantine": DECIDED},
    }
    api = ScriptedApi(monkeypatch, answers)
    done = api.run("gate", *words)
    assert done.exit_code == 0, done.output
    assert api.asked[-1] == request_line
    if body is not None:
        assert api.bodies[-1] == body


def test_an_override_says_who_decided_and_why(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {POST_MODEL: {"id": MODEL, "quarantined": False, "quarantine": DECIDED}}
    api = ScriptedApi(monkeypatch, answers)
    shown = api.run("gate", "override", MODEL, "--reason", "poems only", "--name", "Ada").output
    assert "poems only" in shown
    assert "Ada" in shown
    without = api.run("gate", "override", MODEL)
    assert (without.exit_code, "--reason" in without.output) == (2, True)
