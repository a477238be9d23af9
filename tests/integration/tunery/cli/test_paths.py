"""Arguments that are paths may be relative, have a space, and be typed in any folder."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner

from tests.unit.tunery.cli.scripted_api import ENVIRON, ScriptedApi
from tests.unit.tunery.provenance.signed import new_key, sign_folder
from tunery.cli.main import main
from tunery.provenance.keys import SigningKey

ROWS: Final = "".join(
    f'{{"messages": [{{"role": "user", "content": "Say {n}"}}, '
    f'{{"role": "assistant", "content": "It is {n}."}}]}}\n'
    for n in range(12)
)
TRACE: Final = "job_id,submit_s,duration_s,gpus\n1,0,60,1\n2,0,30,1\n"


def fill(folder: Path, key: SigningKey) -> None:
    """Files and folders that the commands below name."""
    folder.mkdir(parents=True)
    (folder / "rows.jsonl").write_text(ROWS * 12, encoding="utf-8")
    (folder / "trace.csv").write_text(TRACE, encoding="utf-8")
    grader = {"type": "string_check", "name": "g", "operation": "eq", "input": "a"}
    (folder / "grader.json").write_text(json.dumps(grader | {"reference": "a"}), encoding="utf-8")
    sign_folder(folder / "keeper", key)
    (folder / "adapter" / "base").mkdir(parents=True)
    (folder / "adapter" / "adapter_config.json").write_text("{}", encoding="utf-8")


#: the command with {0} before each path → paths that it is given, below the folder
COMMANDS: Final[dict[str, tuple[str, ...]]] = {
    "data check {}": ("rows.jsonl",),
    "data check {} --html {}": ("rows.jsonl", "report.html"),
    "grader validate {}": ("grader.json",),
    "model verify {} --key {}": ("keeper", "../../keys/public.pem"),
    "model where {}": ("adapter",),
    "model export {} {} --format oci": ("keeper", "artifact"),
    "simulate {} --html {}": ("trace.csv", "page.html"),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_first_hour2_u3_a_relative_path_does_what_an_absolute_one_does(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = {"POST /fine_tuning/alpha/graders/validate": {"grader": {"type": "string_check"}}}
    key = new_key(tmp_path / "keys")

    def result(folder: Path, spell: Callable[[Path], str]) -> tuple[int, str]:
        ScriptedApi(monkeypatch, answers)
        words = iter(COMMANDS[command])
        typed = [spell(folder / next(words)) if w == "{}" else w for w in command.split()]
        done = CliRunner().invoke(main, typed, env={**ENVIRON, "COLUMNS": "400"})
        assert not isinstance(done.exception, Exception), done.output
        text = done.output.replace(str(folder), "FOLDER").replace("a folder", "FOLDER")
        return done.exit_code, " ".join(text.split())

    first, second = tmp_path / "one" / "folder", tmp_path / "two" / "a folder"
    fill(first, key)
    fill(second, key)
    expected = result(first, str)
    monkeypatch.chdir(second.parent)
    assert result(second, lambda path: os.path.relpath(path, second.parent)) == expected
    assert expected[0] == 0, expected[1]
