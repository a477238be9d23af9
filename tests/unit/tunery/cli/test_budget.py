"""`tunery budget`: what each command asks the API for, with exact amounts."""

from typing import Any

import pytest

from tests.unit.tunery.cli.scripted_api import ScriptedApi, page

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


@pytest.mark.parametrize(
    ("words", "request_line", "body"),
    [
        (["set", "--amount", "0.1"], "POST /budgets", {"max_amount_micro": 100_000}),
        (
            ["set", "key_1", "--amount", "40.50", "--gpu-hours", "1.5"],
            "POST /budgets",
            {"key_id": "key_1", "max_amount_micro": 40_500_000, "max_gpu_hours": 1.5},
        ),
        (["list"], "GET /budgets", None),
        (["remove"], "DELETE /budgets/tenant", None),
        (["remove", "key_1", "--json"], "DELETE /budgets/key_1", None),
    ],
)
def test_commands_ask_for_budgets(
    words: list[str],
    request_line: str,
    body: dict[str, Any] | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    api = ScriptedApi(monkeypatch, {request_line: page(BUDGET) if words[0] == "list" else BUDGET})
    done = api.run("budget", *words)
    assert done.exit_code == 0, done.output
    assert (api.asked, api.bodies) == ([request_line], [body])


@pytest.mark.parametrize("amount", ["0", "-1", "ten", "0.0000001", "NaN", "Infinity"])
def test_amounts_that_cannot_be_are_refused(amount: str, monkeypatch: pytest.MonkeyPatch) -> None:
    api = ScriptedApi(monkeypatch, {})
    done = api.run("budget", "set", "--amount", amount)
    assert (done.exit_code, api.asked) == (2, [])


def test_a_budget_needs_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    done = ScriptedApi(monkeypatch, {}).run("budget", "set")
    assert "--amount, --gpu-hours" in done.output
