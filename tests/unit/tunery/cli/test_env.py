"""`tunery env`: what a shell evaluates."""

import json
import subprocess

from click.testing import CliRunner

from tunery.cli.main import main

ENVIRON = {"OPENAI_BASE_URL": "http://api/v1", "OPENAI_API_KEY": "a'b c"}


def test_first_hour_a_shell_gets_address_and_key() -> None:
    printed = CliRunner().invoke(main, ["env"], env=ENVIRON).output
    script = f'{printed}\nprintf "%s|%s" "$OPENAI_BASE_URL" "$OPENAI_API_KEY"'
    shown = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    assert shown.stdout == "http://api/v1|a'b c"
    assert json.loads(CliRunner().invoke(main, ["env", "--json"], env=ENVIRON).output) == ENVIRON


def test_first_hour_without_an_api_the_fix_is_named(tmp_path: object) -> None:
    done = CliRunner().invoke(main, ["env", "--data-dir", str(tmp_path)])
    assert (done.exit_code, "start a stack with `tunery up`" in done.output) == (1, True)
