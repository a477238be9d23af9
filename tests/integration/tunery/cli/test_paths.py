"""Arguments that are paths may be relative, have a space, and be typed in any folder."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import click
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
ACCOUNTS: Final = ("azure", "openai", "together")
#: params whose command hands the path to the operating system and nothing else
OPENED_ALONE: Final = frozenset(
    (
        *("audit export file", "audit verify file", "audit verify against", "backup folder"),
        *("base fetch folder", "base add into", "base add template", "benchmarks add files"),
        *("demo data", "demo record", "encryption add-vault token_file"),
        *("encryption add-vault ca_file", "file download path", "file upload path"),
        *("gate import files", "gate import examples", "gate import output", "gate report output"),
        *("grader run file", "invoice show pdf", "restore folder", "restore secret_file"),
        *(f"import {name} {path}" for name in ACCOUNTS for path in ("bases", "prices", "root")),
        *("import report root", "import report output", "import report judge_pairs"),
        *("job mirror tensorboard", "job report output", "mcp folder", "suggest grader"),
        *(
            "job mirror wandb_offline",
            "journal export file",
            "journal import files",
            "journal refuse secret_file",
            "upgrade status secret_file",
            "upgrade finalize secret_file",
        ),
        *(
            f"job {verb} {name}"
            for verb in ("estimate", "plan", "submit")
            for name in ("recipe_path", "grader", "prompts")
        ),
        *("kafka files folder", "kafka files file", "kafka keys file", "model download folder"),
        *("model export base", "model import folder", "model register folder", "node enrol file"),
        *(
            "prices import file",
            "replay base",
            "simulate spot",
            "sweep run path",
            "tenant billing terms",
        ),
    )
)


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
CHECKED: Final = frozenset(
    (
        *("data check files", "data check html", "grader validate file"),
        *("model verify folder", "model verify keys", "model where folder"),
        *("model export folder", "model export target", "simulate trace", "simulate html"),
    )
)


def paths_of(command: click.Command, words: tuple[str, ...] = ()) -> Iterator[str]:
    """Each parameter that is a path, with its command."""
    if isinstance(command, click.Group):
        with click.Context(command) as context:
            for name in command.list_commands(context):
                inner = command.get_command(context, name)
                assert inner is not None
                yield from paths_of(inner, (*words, name))
        return
    for param in command.params:
        if isinstance(param.type, click.Path) and param.name not in ("data_dir", "folders"):
            yield " ".join((*words, str(param.name)))


def test_first_hour2_u3_every_parameter_that_is_a_path_is_known() -> None:
    assert {*paths_of(main)} == OPENED_ALONE | CHECKED


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
