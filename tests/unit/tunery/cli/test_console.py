"""`tunery console`: an address that signs one browser in; what is wrong, with a fix."""

import json
from typing import Any

import httpx
import pytest
from click.testing import CliRunner

from tunery.cli.console import command

ENVIRONMENT = {"OPENAI_BASE_URL": "http://api.test/v1", "OPENAI_API_KEY": "tun-1"}


def answering(monkeypatch: pytest.MonkeyPatch, status: int, body: Any) -> list[httpx.Request]:
    """The gateway answers with this; the requests that it has received."""
    received: list[httpx.Request] = []

    def post(url: str, *, headers: dict[str, str], **_: Any) -> httpx.Response:
        received.append(httpx.Request("POST", url, headers=headers))
        return httpx.Response(status, json=body)

    monkeypatch.setattr(httpx, "post", post)
    return received


def test_the_address_has_a_code_and_never_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    body = {"path": "/console/sign-in?code=c", "expires_in_seconds": 120}
    received = answering(monkeypatch, 200, body)
    shown = CliRunner().invoke(command, ["--no-browser"], env=ENVIRONMENT)
    assert shown.output == "http://api.test/console/sign-in?code=c\n"
    assert str(received[0].url) == "http://api.test/console/codes"
    assert received[0].headers["authorization"] == "Bearer tun-1"
    as_json = CliRunner().invoke(command, ["--json"], env=ENVIRONMENT)
    assert json.loads(as_json.output)["expires_in_seconds"] == 120


def test_a_refused_key_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, 401, {"error": {"message": "The API key is not valid."}})
    shown = CliRunner().invoke(command, [], env=ENVIRONMENT)
    assert shown.exit_code == 1
    assert "The API key is not valid." in str(shown.exception)
