"""The first difference between rows and the log is named by its event."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.unit.services.billing.test_project import header
from tunery.cli._verification import VerifiedPart
from tunery.cli.main import main
from tunery.cli.reconcile import comparison
from tunery.cli.reconcile.comparison import Reconciliation, event_name, first_difference
from tunery.local.paths import DataDir

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
