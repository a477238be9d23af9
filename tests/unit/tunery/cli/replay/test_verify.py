from pathlib import Path

import pytest
from click.testing import CliRunner

from tunery.cli.main import main


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
