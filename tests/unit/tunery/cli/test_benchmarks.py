"""`tunery benchmarks`: a set is added, listed and removed without a server."""

import json
from pathlib import Path

from click.testing import CliRunner

from tunery.cli.benchmarks import command


def run(folder: Path, *words: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(command, [*words, "--data-dir", str(folder)])
    return result.exit_code, result.stdout, result.stderr


def test_add_list_remove(tmp_path: Path) -> None:
    exam = tmp_path / "exam.csv"
    exam.write_text("stem,key\nWhich is it?,this\n")
    keys = ("--question", "stem", "--answer", "key")
    code, out, _ = run(tmp_path, "add", "exam", str(exam), *keys, "--json")
    assert (code, json.loads(out)) == (0, {"name": "exam", "items": 1, "files": 1})
    _, out, _ = run(tmp_path, "list", "--json")
    assert json.loads(out) == [{"name": "exam", "items": 1, "files": ["exam.csv"]}]
    assert "exam.csv" in run(tmp_path, "list")[1]
    assert run(tmp_path, "remove", "exam")[0] == 0
    assert json.loads(run(tmp_path, "list", "--json")[1]) == []


def test_errors_name_the_file_and_the_problem(tmp_path: Path) -> None:
    code, _, err = run(tmp_path, "remove", "exam")
    assert code == 1
    assert "no benchmark 'exam'" in err
    exam = tmp_path / "exam.csv"
    exam.write_text("stem,key\nWhich is it?,this\n")
    code, _, err = run(tmp_path, "add", "exam", str(exam))
    assert code == 1
    assert "exam.csv, row 1: none of the keys stem, key is known as a question" in err
