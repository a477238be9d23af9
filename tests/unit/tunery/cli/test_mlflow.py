"""`tunery mlflow`: what each command asks the API for."""

import json
from typing import Any

import pytest

from tests.unit.tunery.cli.scripted_api import ScriptedApi

PATH = "/integrations/mlflow"
SERVER: dict[str, Any] = {
    "url": "https://mlflow.example.com",
    "authorization": "Bearer …",
    "set_at": 1,
    "warning": None,
}


@pytest.fixture(autouse=True)
def no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TOKEN", "USERNAME", "PASSWORD"):
        monkeypatch.delenv(f"MLFLOW_TRACKING_{name}", raising=False)


@pytest.mark.parametrize(
    ("environment", "sent"),
    [
        ({}, {}),
        ({"TOKEN": "t", "USERNAME": "u"}, {"token": "t"}),
        ({"USERNAME": "u", "PASSWORD": "p"}, {"username": "u", "password": "p"}),
        ({"USERNAME": "u"}, {"username": "u"}),
    ],
)
def test_credentials_are_those_of_the_environment(
    environment: dict[str, str], sent: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(f"MLFLOW_TRACKING_{name}", value)
    api = ScriptedApi(monkeypatch, {f"PUT {PATH}": SERVER})
    done = api.run("mlflow", "set", SERVER["url"])
    assert done.exit_code == 0, done.output
    assert "Bearer …" in done.output
    assert json.loads(api.requests[-1].content) == {"url": SERVER["url"], **sent}


def test_a_server_is_shown_and_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    api = ScriptedApi(monkeypatch, {f"GET {PATH}": SERVER, f"DELETE {PATH}": {"id": "mlflow"}})
    assert "https://mlflow.example.com" in api.run("mlflow", "show").output
    assert "removed" in api.run("mlflow", "remove").output
