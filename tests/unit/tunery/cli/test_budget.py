"""`tunery budget`: what each command asks the API for, with exact amounts."""

import json
from typing import Any

import httpx
import pytest
from click.testing import CliRunner, Result

from tunery.cli.main import main
from tunery.client import Api

BUDGET = {
    "id": "key_1",
    "key_id": "key_1",
    "set_at": 1,
    "month": "2026-11",
    "currency": "EUR",
    "max_gpu_ms": None,
    "used_gpu_ms": 3_600_000,
    "held_gpu_ms": 0,
    "left_gpu_ms": None,
    "max_amount_micro": 40_500_000,
    "used_micro": 500_000,
    "held_micro": 0,
    "left_micro": 40_000_000,
    "reached_percent": 0,
}


def run(words: list[str], monkeypatch: pytest.MonkeyPatch) -> tuple[Result, list[httpx.Request]]:
    seen: list[httpx.Request] = []

    def handle(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        listed = {"data": [BUDGET], "has_more": False, "last_id": "key_1"}
        return httpx.Response(200, json=listed if request.method == "GET" else BUDGET)

    def connected(url: str, key: str) -> Api:
        return Api(url, key, transport=httpx.MockTransport(handle))

    monkeypatch.setattr("tunery.client.Api", connected)
    environ = {"OPENAI_BASE_URL": "http://api/v1", "OPENAI_API_KEY": "k"}
    return CliRunner().invoke(main, ["budget", *words], env=environ), seen


@pytest.mark.parametrize(
    ("words", "request_line", "body"),
    [
        (["set", "--amount", "0.1"], "POST /v1/budgets", {"max_amount_micro": 100_000}),
        (
            ["set", "key_1", "--amount", "40.50", "--gpu-hours", "1.5"],
            "POST /v1/budgets",
            {"key_id": "key_1", "max_amount_micro": 40_500_000, "max_gpu_hours": 1.5},
        ),
        (["list"], "GET /v1/budgets", None),
        (["remove"], "DELETE /v1/budgets/tenant", None),
        (["remove", "key_1", "--json"], "DELETE /v1/budgets/key_1", None),
    ],
)
def test_commands_ask_for_budgets(
    words: list[str],
    request_line: str,
    body: dict[str, Any] | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done, seen = run(words, monkeypatch)
    assert done.exit_code == 0, done.output
    assert [f"{request.method} {request.url.path}" for request in seen] == [request_line]
    assert (json.loads(seen[0].content) if seen[0].content else None) == body


@pytest.mark.parametrize("amount", ["0", "-1", "ten", "0.0000001", "NaN", "Infinity"])
def test_amounts_that_cannot_be_are_refused(amount: str, monkeypatch: pytest.MonkeyPatch) -> None:
    done, seen = run(["set", "--amount", amount], monkeypatch)
    assert (done.exit_code, seen) == (2, [])


def test_a_budget_needs_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    done, _ = run(["set"], monkeypatch)
    assert "--amount, --gpu-hours" in done.output
