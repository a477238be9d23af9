"""`tunery serving`: what each command asks the API for, and what it shows."""

import json

import pytest

from tests.unit.tunery.cli.scripted_api import ScriptedApi, page

NAME = "spool-1"
POOL = {
    "id": NAME,
    "model": "smol",
    "replicas": 2,
    "ready": 1,
    "slots": 1,
    "term_minutes": 60,
    "lane": "standard",
    "set_at": 1,
    "stalled": {"code": "hard_limit_exceeded", "message": "The month is used up."},
    "terms": [
        {"id": f"{NAME}-1", "state": "ready", "since": 1, "node": "a"},
        {"id": f"{NAME}-2", "state": "waiting", "since": 1, "node": None},
    ],
}
ANSWERS = {
    "POST /serving_pools": POOL,
    "GET /serving_pools": page(POOL),
    f"GET /serving_pools/{NAME}": POOL,
    f"POST /serving_pools/{NAME}": POOL,
    f"DELETE /serving_pools/{NAME}": {"id": NAME, "deleted": True},
}


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        (
            ["create", "smol", "--replicas", "2"],
            (
                "POST /serving_pools",
                {"model": "smol", "replicas": 2, "slots": 1, "term_minutes": 60},
            ),
        ),
        (["scale", NAME, "3"], (f"POST /serving_pools/{NAME}", {"replicas": 3})),
        (["show", NAME], (f"GET /serving_pools/{NAME}", None)),
    ],
)
def test_commands_ask_for_what_they_say(
    monkeypatch: pytest.MonkeyPatch, words: list[str], asked: tuple[str, object]
) -> None:
    api = ScriptedApi(monkeypatch, ANSWERS)
    done = api.run("serving", *words, "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.output) == POOL
    path, body = asked
    assert (api.asked[-1], api.bodies[-1]) == (path, body)


def test_states_and_what_keeps_replicas_away_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    api = ScriptedApi(monkeypatch, ANSWERS)
    shown = api.run("serving", "show", NAME).output
    assert "1 of 2" in shown
    assert "ready on a since" in shown
    assert "The month is used up." in shown
    assert NAME in api.run("serving", "list").output
    assert api.run("serving", "remove", NAME).output == f"{NAME} deleted\n"
