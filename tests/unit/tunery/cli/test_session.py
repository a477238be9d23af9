"""Sessions in a terminal."""

import json

import pytest

from tests.unit.tunery.cli.scripted_api import ScriptedApi

SESSION = {
    "id": "session-1",
    "status": "running",
    "model": "tiny",
    "rank": 8,
    "created_at": 1,
    "last_seen_at": None,
    "closed_at": None,
    "ends": None,
    "max_tokens": 2_000_000,
    "max_minutes": 30,
    "erased_at": None,
    "kept_days": 30,
}
COMMAND = {
    "id": "2",
    "kind": "forward_backward",
    "tokens": 20,
    "created_at": 1,
    "answered_at": None,
    "failed": None,
}


def test_sessions_are_listed_shown_and_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {
        "GET /sessions": {"data": [SESSION]},
        "GET /sessions/session-1": SESSION,
        "GET /sessions/session-1/commands": {"data": [COMMAND]},
        "POST /sessions/session-1/raise": {**SESSION, "max_minutes": 240},
        "POST /sessions/session-1/versions": {"id": "ftjob-1", "status": "queued"},
        "POST /sessions/session-1/end": {**SESSION, "ends": "client"},
    }
    api = ScriptedApi(monkeypatch, answers)
    assert "session-1" in api.run("session", "list").output
    assert json.loads(api.run("session", "show", "session-1", "--json").output) == SESSION
    assert "forward_backward" in api.run("session", "log", "session-1").output
    assert "240" in api.run("session", "raise", "session-1", "--minutes", "240").output
    assert "ftjob-1" in api.run("session", "publish", "session-1", "best").output
    assert "client" in api.run("session", "end", "session-1").output
    assert "why" in api.run("session", "--help").output
