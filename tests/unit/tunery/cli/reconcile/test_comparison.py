"""The first difference between rows and the log is named by its event."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from schemas.answers import AnswersCounted, AnswerUse
from services.billing.project import project_tenants
from tests.unit.services.billing.test_project import header
from tunery.billing.periods import period
from tunery.cli._verification import VerifiedPart
from tunery.cli.main import main
from tunery.cli.reconcile import comparison
from tunery.cli.reconcile.comparison import (
    LoggedEvent,
    Reconciliation,
    compare_answers,
    compared_from,
    event_name,
    first_difference,
)
from tunery.local.paths import DataDir
from tunery.runtime.verbs import Upsert

USE = AnswerUse(
    key_id="key-1",
    model="smol",
    requests=1,
    prompt_tokens=5,
    cached_tokens=2,
    completion_tokens=3,
    engine_ms=1,
)
EXPECTED: dict[Any, Any] = {1: ({"gpu_ms": 5}, "t/0@1"), 2: ({"gpu_ms": 6}, "t/0@2")}


def test_equal_rows_have_no_difference() -> None:
    assert first_difference("ledger", EXPECTED, {1: {"gpu_ms": 5}, 2: {"gpu_ms": 6}}) is None


def test_the_first_in_the_order_of_the_log_is_named() -> None:
    changed = first_difference("ledger", EXPECTED, {1: {"gpu_ms": 4}})
    assert changed == "t/0@1: gpu_ms is 5 in the log, 4 in ledger"
    missing = first_difference("ledger", EXPECTED, {1: {"gpu_ms": 5}})
    assert missing == "t/0@2: ledger has no row of it"


def test_a_row_without_an_event_is_named_by_its_own_place() -> None:
    extra = {"gpu_ms": 1, "journal_partition": 3, "journal_offset": 9}
    rows = {1: {"gpu_ms": 5}, 2: {"gpu_ms": 6}, 3: extra}
    difference = first_difference("ledger", EXPECTED, rows)
    assert difference == "tunery.pool.journal.v1/3@9: ledger has a row of it, the log no event"


class Rows:
    """A connection on which every table has these rows."""

    def __init__(self, *rows: dict[str, Any]) -> None:
        self._rows = rows

    async def fetch(self, _: str) -> list[dict[str, Any]]:
        return [*self._rows]


async def test_tokens_of_answers_are_compared_with_the_log() -> None:
    counted = LoggedEvent(header(8), AnswersCounted(uses=(USE,)))
    (kept,) = project_tenants(counted.header, counted.event)
    assert isinstance(kept, Upsert)
    row = {**kept.key, **kept.values}
    equal = await compare_answers(Rows(row), [counted])
    assert (equal.difference, equal.count, equal.name) == (None, 1, "log = billing.answers")
    twice = await compare_answers(Rows(row, {**row, "journal_offset": 9}), [counted])
    event = "tunery.account.journal.v1/3@9"
    assert twice.difference == f"{event}: billing.answers has a row of it, the log no event"
    fewer = await compare_answers(Rows({**row, "completion_tokens": 1}), [counted])
    changed = "completion_tokens is 3 in the log, 1 in billing.answers"
    assert fewer.difference == f"tunery.account.journal.v1/3@8: {changed}"


def test_months_with_answers_alone_are_compared_too() -> None:
    closed = {("acme", "2025-03"): "e1", ("acme", "2025-01"): "e2", ("b", "2025-02"): "e3"}
    hours = {"b": [period("2025-01").first_hour], "c": [7]}
    assert compared_from(hours, closed) == {
        "acme": [period("2025-03").first_hour, period("2025-01").first_hour],
        "b": [period("2025-01").first_hour, period("2025-02").first_hour],
        "c": [7],
    }


def test_an_event_is_named_by_topic_partition_and_offset() -> None:
    assert event_name(header(8)) == "tunery.pool.journal.v1/3@8"


def test_a_difference_is_printed_and_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    part = VerifiedPart(name="log = ledger", count=3, unit="rows", difference="t/0@1: missing")

    async def run(_: DataDir) -> Reconciliation:
        return Reconciliation(equal=False, parts=(part,))

    monkeypatch.setattr(comparison, "run", run)
    shown = CliRunner().invoke(main, ["reconcile"])
    assert (shown.exit_code, "t/0@1: missing" in shown.output) == (1, True)
    printed = CliRunner().invoke(main, ["reconcile", "--json"])
    assert json.loads(printed.output)["parts"][0]["difference"] == "t/0@1: missing"


def test_without_a_stack_the_fix_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TUNERY_POSTGRES_DSN", raising=False)
    done = CliRunner().invoke(main, ["reconcile", "--data-dir", str(tmp_path)])
    assert done.exit_code == 1
    assert "fix: start one with `tunery up`" in done.output
