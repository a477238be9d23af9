"""The steps after training: each claim holds for good answers, and breaks with each fault."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from standardwebhooks.webhooks import Webhook

from tests.unit.tunery.cli.demo.test_context import context
from tunery.cli.demo.context import DemoContext
from tunery.cli.demo.polling import DeadlineExceeded
from tunery.cli.demo.receiver import Received
from tunery.cli.demo.steps import results
from tunery.client import ApiRefusal
from tunery.local.settings import TENANT

SECRET = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
VERDICT: dict[str, Any] = {
    "verdict": "pass",
    "items": 200,
    "reasons": ["no loss of accuracy"],
    "base": {"accuracy": 0.5, "loss": 2.0, "exact_match": None},
    "adapter": {"accuracy": 0.6, "loss": 1.0, "exact_match": 0.25},
}
LINEAGE = {"base_sha256": "b", "dataset_version": "v", "config_sha256": "c", "job_id": "j"}
LINES: list[dict[str, Any]] = [
    {
        "kind": "usage",
        "gpu_ms": 100,
        "amount_micro": 50,
        "hour_start": 0,
        "description": "training",
    },
    {
        "kind": "credit",
        "gpu_ms": -10,
        "amount_micro": -5,
        "hour_start": None,
        "description": "lost",
    },
]
INVOICE: dict[str, Any] = {
    "id": "in_1",
    "status": "open",
    "number": None,
    "currency": "EUR",
    "lines": LINES,
    "gpu_ms": 90,
    "credited_gpu_ms": 10,
    "amount_micro": 45,
    "total_micro": 45,
}


class Registry:
    """An API that has one version of a model, and the cost of a job."""

    def __init__(self, **changes: Any) -> None:
        self.lineage: dict[str, Any] = LINEAGE | changes.get("lineage", {})
        self.stage = changes.get("stage", "staging")
        self.refuses = changes.get("refuses", False)
        self.net_gpu_ms = changes.get("net_gpu_ms", 90)
        self.promoted: list[tuple[str, str, str | None]] = []
        self.terms: list[tuple[str, Any]] = []

    async def model(self, _model_id: str) -> dict[str, Any]:
        return {"lineage": self.lineage}

    async def promote(self, model_id: str, stage: str, expected: str | None) -> dict[str, Any]:
        self.promoted.append((model_id, stage, expected))
        return {"stage": self.stage}

    async def adapter(self, _model_id: str) -> dict[str, Any]:
        return {"files": [{"name": "adapter_model.safetensors"}]}

    async def fetch(self, _file: Any, path: Any) -> None:
        if self.refuses:
            raise ApiRefusal(409, "hash_mismatch", "other bytes than were named", None)
        path.write_bytes(b"adapter")

    async def set_billing_terms(self, tenant: str, terms: Any) -> None:
        self.terms.append((tenant, terms))

    async def cost(self, _job_id: str) -> dict[str, Any]:
        return {"net_gpu_ms": self.net_gpu_ms}


def held(demo: DemoContext, claim: str) -> bool:
    return demo.result.held[claim]


def program_ends_with(monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    async def run(_argv: Any) -> tuple[int, str]:
        return status, ""

    monkeypatch.setattr(results, "run", run)


@pytest.mark.parametrize(
    ("changes", "holds"),
    [
        ({}, True),
        ({"verdict": "block"}, True),
        ({"verdict": "unknown"}, False),
        ({"items": results.ITEMS_MIN - 1}, False),
    ],
)
async def test_a_verdict_is_about_enough_items(changes: dict[str, Any], holds: bool) -> None:
    demo = context()
    demo.job = {"gate": VERDICT | changes}
    await results.gate(demo)
    assert held(demo, "gate_decided_on_paired_items") is holds
    assert demo.result.figures["gate_verdict"] == demo.job["gate"]["verdict"]


@pytest.mark.parametrize(
    ("changes", "status", "broken"),
    [
        ({}, 0, set()),
        ({"lineage": {"config_sha256": ""}}, 0, {"version_registered_with_lineage"}),
        ({"stage": None}, 0, {"promoted_to_staging"}),
        ({}, 1, {"downloaded_adapter_loads_in_peft"}),
        ({"refuses": True}, 0, {"downloaded_adapter_loads_in_peft"}),
    ],
)
async def test_a_version_has_its_lineage_its_stage_and_files_that_load(
    changes: dict[str, Any], status: int, broken: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    program_ends_with(monkeypatch, status)
    api = Registry(**changes)
    demo = context(api)
    demo.job = {"fine_tuned_model": "ft:smol"}
    await results.registry(demo)
    claims = {
        "version_registered_with_lineage",
        "promoted_to_staging",
        "downloaded_adapter_loads_in_peft",
    }
    assert {claim for claim in claims if not held(demo, claim)} == broken
    assert api.promoted == [("ft:smol", "staging", None)]


@pytest.mark.parametrize(
    ("job_id", "secret", "holds"),
    [("j", SECRET, True), ("other", SECRET, False), ("j", "whsec_" + "A" * 32, False)],
)
async def test_a_webhook_is_of_the_job_and_signed_with_the_endpoints_secret(
    job_id: str, secret: str, holds: bool
) -> None:
    body = json.dumps({"type": "fine_tuning.job.succeeded", "data": {"id": job_id}})
    at = datetime.now(UTC)
    headers = {
        "webhook-id": "we_1",
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": Webhook(secret).sign("we_1", at, body),
    }
    demo = context()
    demo.job_id, demo.webhook_secret = "j", SECRET
    demo.receiver.received.append(Received(headers, body.encode()))
    await results.webhook(demo)
    assert held(demo, "webhook_received_and_verified") is holds


async def test_a_webhook_that_never_comes_ends_the_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "POLL_S", 0.001)
    monkeypatch.setattr(results, "WEBHOOK_S_MAX", 0.003)
    with pytest.raises(DeadlineExceeded, match="no webhook arrived"):
        await results.webhook(context())


@pytest.mark.parametrize(
    ("invoice", "hold", "net", "broken"),
    [
        ({}, 90, 90, set()),
        ({}, 89, 90, {"bill_within_hold"}),
        ({"gpu_ms": 91}, 200, 91, {"invoice_equals_ledger"}),
        ({"total_micro": 46}, 200, 90, {"invoice_equals_ledger"}),
        ({}, 200, 89, {"invoice_equals_ledger"}),
        (
            {"lines": LINES[:1], "gpu_ms": 100, "total_micro": 50},
            200,
            100,
            {"lost_work_credited"},
        ),
    ],
)
async def test_a_bill_is_below_its_hold_credits_lost_work_and_adds_up(
    invoice: dict[str, Any],
    hold: int,
    net: int,
    broken: set[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def shown(*_: Any, **__: Any) -> str:
        return json.dumps(INVOICE | invoice)

    monkeypatch.setattr(results, "tunery", shown)
    api = Registry(net_gpu_ms=net)
    demo = context(api)
    demo.estimate = {"hold_gpu_ms": hold}
    await results.bill(demo)
    claims = {"bill_within_hold", "lost_work_credited", "invoice_equals_ledger"}
    assert {claim for claim in claims if not held(demo, claim)} == broken
    assert api.terms == [(TENANT, results.BILLING_TERMS)]


@pytest.mark.parametrize("equal", [True, False])
async def test_a_replay_is_equal_or_its_differences_are_shown(
    equal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = [{"name": "ledger", "difference": None if equal else "row 7"}]

    async def compared(*_: Any, **__: Any) -> str:
        return json.dumps({"records": 12, "equal": equal, "parts": parts})

    monkeypatch.setattr(results, "tunery", compared)
    demo = context()
    await results.replay(demo)
    assert held(demo, "replay_equal_to_the_unit") is equal
    assert demo.result.figures["replayed_records"] == 12


def test_a_line_of_use_says_its_hour() -> None:
    assert results._line_words(LINES[0]) == "01 January 00:00 UTC, training"
    assert results._line_words(LINES[1]) == "lost"
