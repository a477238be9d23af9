from pathlib import Path

import pytest
from click.testing import CliRunner

from tunery.cli.main import main


def test_without_a_stack_a_command_names_the_fix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TUNERY_POSTGRES_DSN", raising=False)
    done = CliRunner().invoke(main, ["replay", "--verify", "--data-dir", str(tmp_path)])
    assert done.exit_code == 1
    assert f"there is no stack in {tmp_path}" in done.output
    assert "fix: start one with `tunery up`" in done.output
