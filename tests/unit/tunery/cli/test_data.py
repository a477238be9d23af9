"""`tunery data check`: exit codes, JSON, and words for people."""

import json
from pathlib import Path

from click.testing import CliRunner

from tunery.cli.data import command

EXAMPLES = Path(__file__).parents[4] / "examples"


def run(*words: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(command, ["check", *words])
    return result.exit_code, result.stdout, result.stderr


def test_a_good_file_is_accepted() -> None:
    code, out, _ = run(str(EXAMPLES / "lighthouse.jsonl"))
    assert code == 0
    assert "accepted" in out


def test_a_bad_file_is_rejected_with_every_planted_row() -> None:
    code, out, _ = run(str(EXAMPLES / "broken.jsonl"), "--json")
    report = json.loads(out)
    planted = json.loads((EXAMPLES / "broken.expected.json").read_text("utf-8"))
    assert code == 1
    assert {str(one["row"]): one["code"] for one in report["errors"]} == planted


def test_the_worst_of_several_files_decides(tmp_path: Path) -> None:
    missing = tmp_path / "missing.jsonl"
    code, out, err = run(str(EXAMPLES / "broken.jsonl"), str(missing))
    assert code == 2
    assert "rejected" in out
    assert "No such file" in err


def test_a_folder_that_is_no_model_is_named(tmp_path: Path) -> None:
    code, _, err = run(str(EXAMPLES / "lighthouse.jsonl"), "--model", str(tmp_path))
    assert code == 2
    assert str(tmp_path) in err
