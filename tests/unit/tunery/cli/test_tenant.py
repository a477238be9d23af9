"""`tunery tenant`: what each command asks the API for."""

import json
from typing import Any

import httpx
import pytest
from click.testing import CliRunner

from tunery.cli.main import main
from tunery.client import Api

TENANT = {
    "id": "acme",
    "name": "Acme Ltd",
    "plan": "standard",
    "created_at": 1,
    "limits": {"soft_gpu_ms": 1, "hard_gpu_ms": 2, "concurrency": 3},
    "price_version": "2026-11",
    "scheduled_plan": {"plan": "free", "effective_at": 1_796_083_200},
    "suspended_at": None,
}


@pytest.mark.parametrize(
    ("words", "path", "body"),
    [
        (["plan", "acme", "--plan", "free"], "plan", {"plan": "free", "effective": "now"}),
        (
            ["plan", "acme", "--prices", "2026-12", "--next-month"],
            "plan",
            {"price_version": "2026-12", "effective": "next_month"},
        ),
        (["suspend", "acme"], "suspend", None),
        (["resume", "acme"], "resume", None),
    ],
)
def test_commands_ask_for_changes(
    words: list[str], path: str, body: dict[str, Any] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[httpx.Request] = []

    def handle(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, json=TENANT)

    def connected(url: str, key: str) -> Api:
        return Api(url, key, transport=httpx.MockTransport(handle))

    monkeypatch.setattr("tunery.client.Api", connected)
    environ = {"OPENAI_BASE_URL": "http://api/v1", "OPENAI_API_KEY": "k"}
    done = CliRunner().invoke(main, ["tenant", *words], env=environ)
    assert done.exit_code == 0, done.output
    assert [request.url.path for request in seen] == [f"/v1/tenants/acme/{path}"]
    assert (json.loads(seen[0].content) if seen[0].content else None) == body
    assert "then" in done.output


def test_limits_are_given_together(monkeypatch: pytest.MonkeyPatch) -> None:
    done = CliRunner().invoke(main, ["tenant", "plan", "acme", "--soft-hours", "1"])
    assert (done.exit_code, "together" in done.output) == (2, True)
