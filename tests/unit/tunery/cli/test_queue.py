"""`tunery queue` and `tunery job why`: what they ask the API for, and what they print."""

import json
from typing import Any

import httpx
import pytest
from click.testing import CliRunner, Result

from tunery.cli.main import main
from tunery.client import Api

FIRST, SECOND = "ftjob-" + "1" * 24, "ftjob-" + "2" * 24
WHY: dict[str, Any] = {
    "position": 2,
    "reason": "Waiting behind 1 job in its lane or in a higher one.",
    "code": "lane_order",
    "eta": 1_762_704_000,
    "lane": "standard",
    "jobs_ahead": 1,
    "unblocked_by": "The jobs before it start, and slots become free.",
    "eta_latest": 1_762_707_600,
}
EXPLAINED: dict[str, Any] = {
    "object": "fine_tuning.job.queue",
    "job_id": SECOND,
    "status": "queued",
    "at": 1_762_700_400,
    "queue": WHY,
}
STARTS: list[dict[str, Any]] = [
    {
        "change": "slots",
        "text": "With 1 of 4 slots",
        "body": {},
        "queue": {**WHY, "code": "next_decision"},
        "refusals": [{"message": "Too dear.", "more_micro": 1_500_000}],
        "currency": "EUR",
        "amount_micro": 1_000_000,
        "amount_max_micro": 2_000_000,
    },
]
LEASE: dict[str, Any] = {
    "lease": 7,
    "job_id": FIRST,
    "tenant": "acme",
    "role": "train",
    "lane": "standard",
    "nodes": ["gpu-07"],
    "slots": 8,
    "granted_at": 1_762_700_400,
    "started_at": None,
    "ends": 1_762_704_000,
    "ends_by": None,
}
SEATS = [{"node": "gpu-07", "slots": 8}]
QUEUE: dict[str, Any] = {
    "object": "queue",
    "pool": "default",
    "at": 1_762_700_400,
    "kinds": [
        {
            "device": "cuda",
            "accelerator": "h200",
            "price_class": "on_demand",
            "nodes": 1,
            "slots": 8,
            "free": 0,
            "held": 8,
            "asked": 16,
            "interrupted": 3,
        }
    ],
    "nodes": [
        {
            "id": "gpu-07",
            "status": "up",
            "device": "cuda",
            "accelerator": None,
            "slots": 8,
            "free": 0,
        }
    ],
    "leases": [LEASE, {**LEASE, "ends": None}],
    "waiting": [
        {"job_id": SECOND, "tenant": "umbrella", "slots": 8, "submitted_at": 1_762_700_400, **WHY}
    ],
    "next": {
        "starts": [{"job_id": SECOND, "seats": SEATS}],
        "preemptions": [{"job_id": SECOND, "stops": [FIRST], "seats": SEATS}],
        "reservation": {"job_id": SECOND, "at": 1_762_704_000, "seats": SEATS},
        "reservations": [{"job_id": SECOND, "at": 1_762_704_000, "seats": SEATS}],
    },
    "calibration": [
        {"role": "train", "attempts": 40, "within_p50_pct": 52.5, "within_p90_pct": 90.0}
    ],
}


def run(words: list[str], monkeypatch: pytest.MonkeyPatch, answer: Any) -> tuple[Result, str]:
    asked: list[str] = []

    def handle(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.raw_path.decode())
        return httpx.Response(200, json=answer)

    def connected(url: str, key: str) -> Api:
        return Api(url, key, transport=httpx.MockTransport(handle))

    monkeypatch.setattr("tunery.client.Api", connected)
    monkeypatch.setenv("TZ", "UTC")
    environ = {"OPENAI_BASE_URL": "http://api/v1", "OPENAI_API_KEY": "k", "COLUMNS": "80"}
    done = CliRunner().invoke(main, words, env=environ)
    return done, ", ".join(asked)


def test_why_says_what_for_and_until_when(monkeypatch: pytest.MonkeyPatch) -> None:
    done, asked = run(["job", "why", SECOND], monkeypatch, {**EXPLAINED, "data": STARTS})
    path = f"/v1/fine_tuning/jobs/{SECOND}"
    assert (done.exit_code, asked) == (0, f"{path}/queue, {path}/starts")
    for shown in ("Waiting behind 1 job", "slots become free", "2 in the lane standard", "16:00"):
        assert shown in done.output
    assert "With 1 of 4 slots" in done.output
    done, _ = run(["job", "why", SECOND, "--json"], monkeypatch, {**EXPLAINED, "data": STARTS})
    assert json.loads(done.output)["starts"] == STARTS
    done, _ = run(["job", "why", SECOND], monkeypatch, {**EXPLAINED, "queue": None})
    assert done.output.splitlines()[-1].split() == ["waiting", "no"]


def test_the_queue_has_nodes_leases_waiting_jobs_and_next_decisions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done, asked = run(["queue"], monkeypatch, QUEUE)
    assert (done.exit_code, asked) == (0, "/v1/queue?pool=default")
    changed = ["queue", "--add", "gpu-07=2", "--remove", "gpu-08", "--without", FIRST]
    _, asked = run(changed, monkeypatch, QUEUE)
    assert asked == "/v1/queue/plan"
    assert run(["queue", "--add", "gpu-07=x"], monkeypatch, QUEUE)[0].exit_code == 2
    lines = done.output.splitlines()
    for head in ("Nodes", "Running", "Waiting, in order of service", "Next decisions"):
        assert head in lines
    assert any("umbrella" in line and "lane_order" in line for line in lines)
    assert any(line.split() == ["training", "40", "52.5", "%", "90", "%"] for line in lines)
    assert f"  start {SECOND} on gpu-07 (8)" in lines
    assert f"  stop {FIRST} for {SECOND} on gpu-07 (8)" in lines
    assert any(line.startswith("  reserve gpu-07 (8) from") for line in lines)
    done, _ = run(["queue", "--json"], monkeypatch, QUEUE)
    assert json.loads(done.output) == QUEUE
    idle_next: dict[str, Any] = {
        "starts": [],
        "preemptions": [],
        "reservation": None,
        "reservations": [],
    }
    idle = {**QUEUE, "next": idle_next}
    assert "  None." in run(["queue"], monkeypatch, idle)[0].output.splitlines()


def test_tables_fit_a_terminal_of_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tunery.cli._api.interactive", lambda: True)
    done, _ = run(["queue"], monkeypatch, {**QUEUE, "next": {**QUEUE["next"], "preemptions": []}})
    assert max(len(line) for line in done.output.splitlines()) <= 80
    assert SECOND in done.output


def test_help_has_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "tunery queue --json" in run(["queue", "--help"], monkeypatch, None)[0].output
    assert "tunery job why" in run(["job", "--help"], monkeypatch, None)[0].output
