"""`tunery tenant`: what each command asks the API for."""

from typing import Any

import pytest
from click.testing import CliRunner

from tests.unit.tunery.cli.scripted_api import ScriptedApi
from tunery.cli.main import main

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
    asked = f"POST /tenants/acme/{path}"
    api = ScriptedApi(monkeypatch, {asked: TENANT})
    done = api.run("tenant", *words)
    assert done.exit_code == 0, done.output
    assert (api.asked, api.bodies) == ([asked], [body])
    assert "then" in done.output


def test_limits_are_given_together(monkeypatch: pytest.MonkeyPatch) -> None:
    done = CliRunner().invoke(main, ["tenant", "plan", "acme", "--soft-hours", "1"])
    assert (done.exit_code, "together" in done.output) == (2, True)
