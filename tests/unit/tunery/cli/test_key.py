"""`tunery key`: which key a command names, the caller's own or that of a tenant."""

import json

import httpx
import pytest
from click.testing import CliRunner

from tunery.cli.main import main
from tunery.client import Api

KEY = {
    "id": "key_1",
    "name": "",
    "hint": "abcd",
    "key": "tun-new",
    "scopes": ["read"],
    "models": None,
    "spend_cap_micro": None,
    "requests_per_minute": None,
    "created_at": 1,
    "expires_at": None,
    "revoked_at": None,
    "previous_until": None,
}


@pytest.mark.parametrize(
    ("words", "request_line"),
    [
        (["rotate"], "POST /v1/keys/current/rotate"),
        (["rotate", "key_1"], "POST /v1/keys/key_1/rotate"),
        (["rotate", "acme", "key_1"], "POST /v1/tenants/acme/keys/key_1/rotate"),
        (["revoke", "key_1"], "DELETE /v1/keys/key_1"),
        (["revoke", "acme", "key_1"], "DELETE /v1/tenants/acme/keys/key_1"),
        (["list"], "GET /v1/keys"),
        (["list", "acme"], "GET /v1/tenants/acme/keys"),
    ],
)
def test_arguments_select_the_key(
    words: list[str], request_line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[httpx.Request] = []

    def handle(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        page = {"data": [KEY], "has_more": False, "last_id": "key_1"}
        return httpx.Response(200, json=page if words[0] == "list" else KEY)

    def connected(url: str, key: str) -> Api:
        return Api(url, key, transport=httpx.MockTransport(handle))

    monkeypatch.setattr("tunery.client.Api", connected)
    environ = {"OPENAI_BASE_URL": "http://api/v1", "OPENAI_API_KEY": "k"}
    done = CliRunner().invoke(main, ["key", *words], env=environ)
    assert done.exit_code == 0, done.output
    assert [f"{request.method} {request.url.path}" for request in seen] == [request_line]
    if words[0] == "rotate":
        assert json.loads(seen[0].content) == {"overlap_seconds": 86_400}
        assert "tun-new" in done.output


def test_three_names_are_a_usage_error() -> None:
    done = CliRunner().invoke(main, ["key", "rotate", "acme", "key_1", "key_2"])
    assert done.exit_code == 2
    assert "Give a tenant and a key id" in done.output
