"""Screens of 80 and 120 columns, as a person sees them; and pipes, which get all of each value.

`WRITE_SCREENS=1 pytest tests/unit/tunery/cli/test__tables.py` writes the screens anew.
"""

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.gateway.billing.invoice_responses import invoice_response, line_responses
from services.gateway.billing.invoice_sums import sums_of_lines
from services.gateway.billing.usage import JobFacts
from tests.unit.services.gateway.billing.test_invoice_responses import sample
from tests.unit.tunery.cli.scripted_api import ScriptedApi, page
from tests.unit.tunery.cli.test_node import NODE
from tests.unit.tunery.cli.test_queue import QUEUE
from tunery.cli import _api
from tunery.cli._tables import field_lines, table_lines

ROOT: Final = Path(__file__).parents[4]
SCREENS: Final = Path(__file__).parent / "screens"
WIDTHS: Final = (80, 120)
IDENTIFIER: Final = re.compile(r"(?:ftjob|file|ftckpt)-[0-9a-f]{24}|ft:\\S+|[0-9a-f]{64}")
TIME: Final = 1_795_000_000
JOB_IDS: Final = ("ftjob-bea67270c641a5a668e3a8bd", "ftjob-27d2567946205df0d8185fc7")
MODEL: Final = "ft:smollm2-135m-instruct:acme:lighthouse-keeper:1a2b3c4d"
SHA: Final = "0c61ab" + "7" * 58
COST: Final = {"amount_micro": 42_323, "amount_max_micro": 320_000, "currency": "EUR"}
GATE: Final = {
    "verdict": "pass",
    "reasons": [
        "-4.4 points on 249 general questions: a loss above 7.7 points is ruled out (95 %)"
    ],
    "own_data": "loss 3.67 → 0.08, exact answers 0 % → 67 %",
    "advice": None,
}


def job(job_id: str, status: str, **changes: Any) -> dict[str, Any]:
    return {
        "id": job_id,
        "status": status,
        "phase": status,
        "model": "smollm2-135m-instruct",
        "fine_tuned_model": None,
        "node": None,
        "progress": None,
        "queue": None,
        "gate": None,
        "cost": COST,
        "error": None,
        "created_at": TIME,
        **changes,
    }


PROGRESS: Final = {
    "step": 12,
    "total_steps": 12,
    "percent": 100.0,
    "train_loss": 0.7140874862670898,
    "seconds_remaining": None,
}
ENDED: Final = job(
    JOB_IDS[0],
    "succeeded",
    phase="done",
    fine_tuned_model=MODEL,
    gate=GATE,
    progress=PROGRESS,
)
QUEUED: Final = job(
    JOB_IDS[1],
    "queued",
    queue={
        "reason": "Waiting for 1 slot: every node that fits is busy.",
        "unblocked_by": "A running job that ends or is stopped.",
        "position": 1,
        "lane": "standard",
        "jobs_ahead": 2,
        "eta": TIME + 600,
        "eta_latest": TIME + 1_800,
    },
)
FILE: Final[dict[str, Any]] = {
    "id": "file-" + "3f" * 12,
    "filename": "the questions of our customers.jsonl",
    "dataset": "faq@2",
    "bytes": 12_345_678,
    "sha256": SHA,
    "status": "processed",
    "status_details": None,
    "created_at": TIME,
    "validation": {"rows": 1_234, "warnings": 1, "dialect": "chat", "tokens": {"smollm2": 98_765}},
}
MODEL_SHOWN: Final = {
    "id": MODEL,
    "type": "fine-tuned",
    "stage": "staging",
    "quarantined": False,
    "verdict": "pass",
    "parent": "smollm2-135m-instruct",
    "job_id": JOB_IDS[0],
    "sha256": SHA,
    "series": "s",
    "created": TIME,
    "lineage": {"job_id": JOB_IDS[0], "verdict": "pass", "training_sha256": SHA},
}
FORECAST: Final = {
    "estimation_available": True,
    "model": "smollm2-135m-instruct",
    "refusal": None,
    "trained_tokens": 61_440,
    "steps": 120,
    "memory_bytes": 2_100_000_000,
    "expected_duration_seconds": 640,
    "train_gpu_ms": 600_000,
    "eval_gpu_ms": 40_000,
    "amount_micro": 355_556,
    "amount_max_micro": 1_066_667,
    "currency": "EUR",
    "hyperparameters": {"rank": 8},
}
PLANNED: Final = {
    "allowed_to_proceed": True,
    "refusals": [],
    "unchecked": ["what the API key may spend in a month"],
    "settings": [
        {
            "name": "rank",
            "value": 8,
            "source": "given",
            "path": "lora.rank",
            "why": "enough for up to some 10,000 rows (LoRA without regret)",
        },
        {"name": "alpha", "value": 16, "source": "rule", "path": None, "why": "twice the rank"},
        {
            "name": "packing",
            "value": True,
            "source": "default",
            "path": None,
            "why": "faster; `false` where a base lets the documents of a row see each other",
        },
        {
            "name": "rank_pattern",
            "value": {},
            "source": "default",
            "path": None,
            "why": '`rank` for all; `{"q_proj": 32}` for some',
        },
    ],
    "nodes": [
        {
            "device": "cuda",
            "accelerator": "h200",
            "domain": "rack-3",
            "spot": False,
            "nodes": 2,
            "slots": 8,
            "memory_bytes": 141_000_000_000,
            "is_alive": True,
            "fits": True,
            "why_not": None,
        },
        {
            "device": "cpu",
            "accelerator": None,
            "domain": None,
            "spot": True,
            "nodes": 1,
            "slots": 2,
            "memory_bytes": 16_000_000_000,
            "is_alive": True,
            "fits": False,
            "why_not": "the job is for cuda devices",
        },
    ],
    "queue": {**QUEUED["queue"], "reason": None, "unblocked_by": None},
    "estimate": FORECAST,
    "configuration": SHA,
    "duplicate_of": {"id": JOB_IDS[0], "status": "succeeded", "fine_tuned_model": MODEL},
    "recipe": {},
}
KEY: Final[dict[str, Any]] = {
    "id": "key_5d1f0c1a2b3c4d5e",
    "name": "the nightly pipeline of the search team",
    "hint": "abcd",
    "scopes": ["read", "write", "billing.read"],
    "models": ["smollm2-135m-instruct"],
    "spend_cap_micro": 500_000,
    "spend_cap_currency": "EUR",
    "requests_per_minute": 60,
    "created_at": TIME,
    "last_used_at": None,
    "expires_at": TIME + 86_400,
    "revoked_at": None,
}
INVOICE: Final = invoice_response(sample(), lambda _: None).model_dump()
LINES: Final = list(line_responses(sample()))
SUMS: Final = sums_of_lines(
    LINES, frozenset({"key", "metadata[team]"}), {"ftjob-1": JobFacts(key=KEY["id"])}
)
COMMANDS: Final[dict[str, tuple[str, ...]]] = {
    "invoice list": ("invoice", "list"),
    "invoice show": ("invoice", "show", "acme", "--period", "2026-11"),
    "invoice sums": ("invoice", "sums", "--period", "2026-11", "--by", "key,metadata[team]"),
    "key list": ("key", "list"),
    "queue": ("queue",),
    "node list": ("node", "list"),
    "data check": ("data", "check", "examples/broken.jsonl"),
    "job list": ("job", "list"),
    "job show ended": ("job", "show", JOB_IDS[0]),
    "job show queued": ("job", "show", JOB_IDS[1]),
    "job plan": ("job", "plan", "--model", "smollm2-135m-instruct", "--file", FILE["id"]),
    "file list": ("file", "list"),
    "file show": ("file", "show", FILE["id"]),
    "model list": ("model", "list"),
    "model show": ("model", "show", MODEL),
}
ANSWERS: Final[dict[str, Any]] = {
    "GET /invoices": page(INVOICE),
    "GET /invoices/2026-11-EUR/lines": page(*(line.model_dump() for line in LINES)),
    "GET /invoices/2026-11-EUR/sums": page(*(entry.model_dump() for entry in SUMS)),
    "GET /keys": page(KEY),
    "GET /queue": {**QUEUE, "leases": QUEUE["leases"][:1]},
    "GET /nodes": page(NODE),
    "GET /fine_tuning/jobs": page(ENDED, QUEUED),
    f"GET /fine_tuning/jobs/{JOB_IDS[0]}": ENDED,
    f"GET /fine_tuning/jobs/{JOB_IDS[1]}": QUEUED,
    "POST /fine_tuning/jobs/plan": PLANNED,
    "GET /files": page(FILE),
    f"GET /files/{FILE['id']}": FILE,
    f"GET /files/{FILE['id']}/validation": {"report": {}},
    "GET /models": page(MODEL_SHOWN),
    f"GET /models/{MODEL}": MODEL_SHOWN,
}


@pytest.fixture(autouse=True)
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A terminal in UTC, on the day of the screens, whose width COLUMNS says."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    monkeypatch.setattr(_api, "interactive", lambda: True)
    monkeypatch.setattr("tunery.cli._job_view.time.time", lambda: float(TIME))
    yield
    monkeypatch.undo()
    time.tzset()


def screen(monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], width: int) -> str:
    monkeypatch.chdir(ROOT)
    done = ScriptedApi(monkeypatch, ANSWERS).run(*words, columns=width)
    rejects = words[:2] == ("data", "check")
    assert done.exit_code == rejects, (done.output, done.exception)
    return done.output


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", COMMANDS)
def test_first_hour_10_a_screen_is_as_it_was_looked_at(
    name: str, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Identifiers were folded at 80 columns: `ftjob-bea672/70c641a5a668/e3a8bd`."""
    shown = screen(monkeypatch, COMMANDS[name], width)
    expected = SCREENS / f"{name.replace(' ', '_')}_{width}.txt"
    if os.environ.get("WRITE_SCREENS"):
        expected.write_text(shown)
    assert shown == expected.read_text()


@pytest.mark.parametrize("width", [40, *WIDTHS])
@pytest.mark.parametrize("name", COMMANDS)
def test_first_hour_10_identifiers_are_whole_at_any_width(
    name: str, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    narrow = set(IDENTIFIER.findall(screen(monkeypatch, COMMANDS[name], width)))
    assert narrow == set(IDENTIFIER.findall(screen(monkeypatch, COMMANDS[name], 1_000)))


@pytest.mark.parametrize("name", COMMANDS)
def test_first_hour_20_a_pipe_gets_all_of_each_value(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`model show` cut every SHA-256 with "…", in pipes too."""
    wide = screen(monkeypatch, COMMANDS[name], 1_000)
    monkeypatch.setattr(_api, "interactive", lambda: False)
    assert screen(monkeypatch, COMMANDS[name], 40) == wide
    assert "…" not in wide or name == "data check"  # which shows a part of a faulty row


def test_first_hour_20_a_model_is_shown_without_repetition(monkeypatch: pytest.MonkeyPatch) -> None:
    """It printed the job and the verdict twice, and "quarantined False"."""
    lines = screen(monkeypatch, COMMANDS["model show"], 120).splitlines()
    names = [line.split("  ")[0] for line in lines]
    assert len(names) == len(set(names))
    assert not [line for line in lines if "False" in line]


def test_times_have_their_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Low: tables had local times without a zone."""
    assert _api.moment(0) == "1970-01-01 00:00:00 UTC"
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    assert _api.moment(0).endswith(" EST")
    assert _api.hour(0) == "1970-01-01 00:00 UTC"


@pytest.mark.parametrize("colour", [{}, {"NO_COLOR": "1"}])
def test_no_color_means_no_escape_sequences(
    colour: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"FORCE_COLOR": "1", "TERM": "xterm-256color", **colour}.items():
        monkeypatch.setenv(name, value)
    assert ("\x1b" in screen(monkeypatch, ("job", "list"), 80)) == (not colour)


def test_what_a_terminal_acts_on_is_not_sent_to_it() -> None:
    (_, line) = table_lines(("name",), [("a\x1b[2Jb\nc",)], 80)
    assert line.plain == "a [2Jb c"


words = st.text(st.characters(codec="utf-8"), max_size=30)


@given(st.lists(st.tuples(words, words, words), max_size=5), st.integers(1, 100))
def test_any_table_has_all_of_its_words(rows: list[tuple[str, str, str]], width: int) -> None:
    shown = "".join(line.plain for line in table_lines(("a", "b", "c"), rows, width))
    for row in rows:
        for text in row:
            known = "".join(mark if mark.isprintable() else " " for mark in text)
            assert all(word in shown for word in known.split())


@given(st.lists(st.tuples(words, words), max_size=5), st.integers(1, 100) | st.none())
def test_any_field_has_all_of_its_words(pairs: list[tuple[str, str]], width: int | None) -> None:
    shown = "".join(line.plain for line in field_lines(pairs, width))
    for _, value in pairs:
        known = "".join(mark if mark.isprintable() else " " for mark in value)
        assert all(word in shown for word in known.split())
