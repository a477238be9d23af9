from pathlib import Path

import pytest
from click.testing import CliRunner
from immutables import Map

from services.scheduler.domain.job.state import MonthUse, TenantJobs
from tunery.cli.main import main
from tunery.cli.replay.verify import quota_by_month, unequal
from tunery.runtime.journal.fold import Fold
from tunery.runtime.tools.verify import Replay


@pytest.mark.parametrize("words", [["--verify"], []], ids=["verify", "first_hour_low"])
def test_without_a_stack_a_command_names_the_fix(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without --verify it said "Missing option", although there is nothing else to choose."""
    monkeypatch.delenv("TUNERY_POSTGRES_DSN", raising=False)
    done = CliRunner().invoke(main, ["replay", *words, "--data-dir", str(tmp_path)])
    assert done.exit_code == 1
    assert f"there is no stack in {tmp_path}" in done.output
    assert "fix: start one with `tunery up`" in done.output


def tenant(used: dict[str, int]) -> TenantJobs:
    months = {f"tenant/{month}": MonthUse(gpu_ms=gpu_ms) for month, gpu_ms in used.items()}
    of_a_key = {"key_1/2026-11": MonthUse(gpu_ms=3)}
    return TenantJobs(use=Map(months | of_a_key))


def test_quota_is_read_from_every_partition() -> None:
    acme = tenant({"2026-10": 5, "2026-11": 7})
    beta = tenant({"2026-11": 9})
    replays = [
        Replay(0, Fold(Map({"acme": acme})), accepted=1, void=0),
        Replay(1, Fold(Map({"beta": beta})), accepted=1, void=0),
    ]
    assert quota_by_month(replays) == {
        ("acme", "2026-10"): 5,
        ("acme", "2026-11"): 7,
        ("beta", "2026-11"): 9,
    }


def test_one_unit_is_a_difference() -> None:
    assert unequal({("acme", "2026-11"): 7}, {("acme", "2026-11"): 7}) is None
    assert unequal({("acme", "2026-11"): 7}, {("acme", "2026-11"): 8}) == (
        "acme, 2026-11: quota 7 GPU-ms, ledger 8 GPU-ms"
    )


def test_rows_on_one_side_only_are_a_difference() -> None:
    assert unequal({}, {("acme", "2026-11"): 1}) is not None
    assert unequal({("acme", "2026-11"): 1}, {}) is not None
    assert unequal({("acme", "2026-11"): 0}, {}) is None
