"""`tunery tenant`: what each command asks the API for."""

import json
from typing import Any

import pytest

from tests.unit.tunery.cli.scripted_api import ScriptedApi, page, refusal

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
            ["plan", "acme", "--plan", "free", "--next-month"],
            "plan",
            {"plan": "free", "effective": "next_month"},
        ),
        (["suspend", "acme"], "suspend", None),
        (["resume", "acme"], "resume", None),
    ],
)
def test_commands_ask_for_changes(
    words: list[str], path: str, body: dict[str, Any] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = f"POST /tenants/acme/{path}"
    api = ScriptedApi(monkeypatch, {asked: TENANT})
    done = api.run("tenant", *words)
    assert done.exit_code == 0, done.output
    assert (api.asked, api.bodies) == ([asked], [body])
    assert "then" in done.output


@pytest.mark.parametrize(("currency", "shown"), [("USD", "512.00 EUR"), ("EUR", "9.00 USD")])
def test_review2_m11_prices_in_another_currency_name_the_prepaid_money_that_they_strand(
    currency: str, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    credits_left = (("P-1", "EUR", 500), ("P-2", "EUR", 12), ("P-3", "USD", 9), ("P-4", "JPY", 0))
    left = [
        {"id": reference, "currency": code, "left_micro": amount * 1_000_000}
        for reference, code, amount in credits_left
    ]
    answers = {
        "POST /tenants/acme/plan": TENANT,
        "GET /prices/2026-12": {"book": {"currency": currency}},
        "GET /billing/prepaid": page(*left),
    }
    api = ScriptedApi(monkeypatch, answers)
    done = api.run("tenant", "plan", "acme", "--prices", "2026-12", "--next-month")
    assert done.exit_code == 0, done.output
    assert api.bodies[0] == {"price_version": "2026-12", "effective": "next_month"}
    assert f"prepaid, not for bills in {currency}" in done.output
    assert shown in done.output
    assert "JPY" not in done.output


def test_limits_are_given_together(monkeypatch: pytest.MonkeyPatch) -> None:
    done = ScriptedApi(monkeypatch, {}).run("tenant", "plan", "acme", "--soft-hours", "1")
    assert (done.exit_code, "together" in done.output) == (2, True)


PARTS = ("jobs", "models", "files", "key")
BEGUN = {
    "tenant": "acme",
    "status": "running",
    "begun_at": 1,
    "erased_at": None,
    "parts": [{"part": part, "erased_at": None} for part in PARTS],
    "sha256": None,
}
ERASED = {
    **BEGUN,
    "status": "done",
    "erased_at": 9,
    "parts": [{"part": part, "erased_at": 9} for part in PARTS],
    "sha256": "5" * 64,
}
HALF = {**BEGUN, "parts": [*ERASED["parts"][:2], *BEGUN["parts"][2:]]}  # type: ignore[index]  # lists
ERASE, STATE = "POST /tenants/acme/erase", "GET /tenants/acme/erasure"


def test_security_h4_an_erasure_asks_for_the_name_and_waits_for_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tunery.cli.tenant.POLL_S", 0)
    monkeypatch.setattr("tunery.client.asynchronous.PAUSE_S", 0)
    undecided = refusal(503, "not_decided_yet", "The request was not decided in time.")
    api = ScriptedApi(monkeypatch, {ERASE: [undecided, BEGUN], STATE: [BEGUN, HALF, ERASED]})
    done = api.run("tenant", "erase", "acme", typed="acme\n")
    assert done.exit_code == 0, done.output
    assert (api.asked[0], api.bodies[0]) == (ERASE, {"confirm": "acme"})
    assert done.stderr.splitlines()[-4:] == [f"{part} erased" for part in PARTS]
    assert "5" * 64 in done.stdout


def test_security_h4_a_wrong_name_erases_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    api = ScriptedApi(monkeypatch, {ERASE: ERASED})
    refused = api.run("tenant", "erase", "acme", typed="acne\n")
    assert (refused.exit_code, api.asked) == (1, [])
    assert "nothing was changed" in refused.output
    said_before = api.run("tenant", "erase", "acme", "--yes", "--json")
    assert json.loads(said_before.stdout) == ERASED
