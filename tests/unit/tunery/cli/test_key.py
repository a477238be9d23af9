"""`tunery key`: which key a command names, the caller's own or that of a tenant."""

import pytest

from tests.unit.tunery.cli.scripted_api import ScriptedApi, page

KEY = {
    "id": "key_1",
    "name": "",
    "hint": "abcd",
    "key": "tun-new",
    "scopes": ["read"],
    "models": None,
    "spend_cap_micro": None,
    "spend_cap_currency": None,
    "requests_per_minute": None,
    "created_at": 1,
    "expires_at": None,
    "revoked_at": None,
    "previous_until": None,
}


@pytest.mark.parametrize(
    ("words", "request_line"),
    [
        (["rotate"], "POST /keys/current/rotate"),
        (["rotate", "key_1"], "POST /keys/key_1/rotate"),
        (["rotate", "acme", "key_1"], "POST /tenants/acme/keys/key_1/rotate"),
        (["revoke", "key_1"], "DELETE /keys/key_1"),
        (["revoke", "acme", "key_1"], "DELETE /tenants/acme/keys/key_1"),
        (["list"], "GET /keys"),
        (["list", "acme"], "GET /tenants/acme/keys"),
    ],
)
def test_arguments_select_the_key(
    words: list[str], request_line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = ScriptedApi(monkeypatch, {request_line: page(KEY) if words[0] == "list" else KEY})
    done = api.run("key", *words)
    assert done.exit_code == 0, done.output
    assert api.asked == [request_line]
    if words[0] == "rotate":
        assert api.bodies == [{"overlap_seconds": 86_400}]
        assert "tun-new" in done.output


def test_first_hour_16_a_list_of_keys_shows_what_limits_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    capped = {
        **KEY,
        "models": ["tiny"],
        "spend_cap_micro": 500_000,
        "spend_cap_currency": "EUR",
        "requests_per_minute": 60,
    }
    shown = ScriptedApi(monkeypatch, {"GET /keys": page(capped)}).run("key", "list").output
    head, row = shown.splitlines()
    assert all(name in head for name in ("last four", "models", "spend cap", "requests/min"))
    assert all(value in row for value in ("abcd", "tiny", "0.5000 EUR", "60"))


def test_security_l11_a_key_with_the_scope_admin_is_warned_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    admin = {**KEY, "scopes": ["admin"]}
    for key, warned in ((admin, True), (KEY, False)):
        api = ScriptedApi(monkeypatch, {"POST /tenants/acme/keys": key})
        assert ("every tenant" in api.run("key", "create", "acme").output) == warned


def test_three_names_are_a_usage_error(monkeypatch: pytest.MonkeyPatch) -> None:
    done = ScriptedApi(monkeypatch, {}).run("key", "rotate", "acme", "key_1", "key_2")
    assert done.exit_code == 2
    assert "Give a tenant and a key id" in done.output


def test_first_hour_16_a_key_is_made_for_base_models_that_exist(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bases = {"data": [{"id": "smol", "aliases": ["gpt-4o-mini"]}, {"id": "tiny", "aliases": []}]}
    api = ScriptedApi(monkeypatch, {"GET /bases": bases, "POST /tenants/acme/keys": KEY})
    refused = api.run("key", "create", "acme", "--model", "nosuch", "--model", "tiny")
    assert (refused.exit_code, api.asked) == (2, ["GET /bases"])
    assert "no such base model: nosuch; there are gpt-4o-mini, smol, tiny" in refused.output
    words = ("--model", "tiny", "--model", "gpt-4o-mini")
    assert api.run("key", "create", "acme", *words).exit_code == 0
    assert api.bodies[-1]["models"] == ["smol", "tiny"]
