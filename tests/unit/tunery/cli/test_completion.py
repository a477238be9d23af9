"""Shell completion asks the command itself, so it is always up to date."""

import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

from tunery.cli.main import main


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_completion_script_asks_the_command(shell: str) -> None:
    done = CliRunner().invoke(main, ["completion", shell])
    assert done.exit_code == 0
    assert f"_TUNERY_COMPLETE={shell}_complete" in done.output


def test_completions_are_the_existing_commands_and_options() -> None:
    program = [sys.executable, "-c", "from tunery.cli.main import main; main(prog_name='tunery')"]
    asking = {
        "_TUNERY_COMPLETE": "bash_complete",
        "COMP_WORDS": "tunery webhook re",
        "COMP_CWORD": "2",
    }
    done = subprocess.run(
        program, env={**os.environ, **asking}, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["plain,redeliver"]
