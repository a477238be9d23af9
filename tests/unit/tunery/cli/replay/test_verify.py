from pathlib import Path

import pytest
from click.testing import CliRunner

from tunery.cli.main import main
from tunery.cli.replay.verify import servers
from tunery.local.paths import DataDir


def test_external_servers_need_no_stack(tmp_path: Path) -> None:
    environ = {"TUNERY_KAFKA_BOOTSTRAP": "k:9092", "TUNERY_POSTGRES_DSN": "postgresql://db/x"}
    assert servers(DataDir(tmp_path), environ) == ("k:9092", "postgresql://db/x")


def test_without_a_stack_a_command_names_the_fix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TUNERY_POSTGRES_DSN", raising=False)
    done = CliRunner().invoke(main, ["replay", "--verify", "--data-dir", str(tmp_path)])
    assert done.exit_code == 1
    assert f"there is no stack in {tmp_path}" in done.output
    assert "fix: start one with `tunery up`" in done.output
