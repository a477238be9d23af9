"""`tunery data check`: exit codes, JSON, and words for people."""

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.unit.tunery.cli.scripted_api import ScriptedApi
from tunery.cli.data import command
from tunery.cli.main import main
from tunery.data.screening import benchmarks
from tunery.local.paths import base_model_dir

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
    assert {str(error["row"]): error["code"] for error in report["errors"]} == planted


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


def test_json_has_the_documented_keys_and_no_others(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text('prompt,completion\n"a\nb",c\n"d",\n')
    code, out, _ = run(str(path), str(EXAMPLES / "lighthouse.jsonl"), "--json")
    assert code == 1
    rejected, accepted = map(json.loads, out.splitlines())
    keys = ["counts", "errors", "rows", "tokens", "verdict", "warnings"]
    assert sorted(rejected) == sorted(accepted) == keys
    first, second = rejected["errors"]
    assert sorted(first) == ["code", "hint", "message", "pointer", "row"]
    assert (first["row"], first["pointer"], first["code"]) == (2, "/completion", "content_empty")
    assert first["message"].endswith("(line 4)")
    assert (second["row"], second["code"]) == (None, "too_few_rows")
    assert accepted["verdict"] == "accepted"


def test_min_rows_is_the_tenant_s_choice(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"prompt": "a", "completion": "b"}\n')
    assert run(str(path))[0] == 1
    assert run(str(path), "--min-rows", "1")[0] == 0


def test_benchmarks_and_personal_data_are_looked_for_when_asked(tmp_path: Path) -> None:
    question = "How many lamps burn when seven keepers light nine lamps each on one dark night?"
    rows = tmp_path / "rows.jsonl"
    rows.write_text(
        json.dumps({"prompt": f"{question} ann@mail.example", "completion": "63"}) + "\n"
    )
    exam = tmp_path / "exam.jsonl"
    exam.write_text(json.dumps({"question": question, "answer": "63"}) + "\n")
    benchmarks.add(benchmarks.folder_in(tmp_path), "exam", [exam])
    here = (str(rows), "--min-rows", "0", "--json", "--data-dir", str(tmp_path))
    _, out, _ = run(*here)
    assert json.loads(out)["counts"].keys() == {"few_rows"}
    code, out, _ = run(*here, "--benchmarks", "exam", "--personal", "block")
    assert code == 1
    wanted = {"few_rows", "benchmark_item", "benchmark_overlap", "personal_data_refused"}
    assert json.loads(out)["counts"].keys() == wanted
    code, _, err = run(*here, "--benchmarks", "other")
    assert code == 2
    assert "no benchmark 'other'" in err


def test_two_versions_are_compared(tmp_path: Path) -> None:
    for name, answers in (("old.jsonl", "abcc"), ("new.jsonl", "bxccd")):
        rows = [
            {"prompt": f"Which {ord(answer) // 2}?", "completion": answer} for answer in answers
        ]
        (tmp_path / name).write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    old, new = str(tmp_path / "old.jsonl"), str(tmp_path / "new.jsonl")
    result = CliRunner().invoke(command, ["diff", old, new])
    assert result.exit_code == 1
    assert "3 rows are the same" in result.stdout
    assert "added: 2 (rows 2, 5)" in result.stdout
    assert "removed: 1 (row 1)" in result.stdout
    assert CliRunner().invoke(command, ["diff", old, old, "--json"]).exit_code == 0


class Server:
    """An API that compares what was uploaded."""

    def diff(self, before: str, after: str) -> dict[str, Any]:
        side = {"file": "file-1", "sha256": "a" * 64, "rows": 3, "faulty": 0}
        return {
            "object": "file.diff",
            "before": {"id": before, **side},
            "after": {"id": after, **side},
            "same": 2,
            "added_count": 1,
            "removed_count": 0,
            "changed_count": 1,
            "added": [3],
            "removed": [],
            "changed": [[1, 2]],
        }


def test_uploaded_versions_are_compared_by_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tunery.cli._api.connect", lambda _: nullcontext(Server()))
    result = CliRunner().invoke(command, ["diff", "faq@1", "file-2"])
    assert result.exit_code == 1, result.output
    assert "faq@1 → file-2: 2 rows are the same" in result.stdout
    assert "changed: 1 (row 1 → 2)" in result.stdout
    here = tmp_path / "a.jsonl"
    here.write_bytes(b"")
    mixed = CliRunner().invoke(command, ["diff", "faq@1", str(here)])
    assert (mixed.exit_code, "no file faq@1" in mixed.output) == (2, True)


def test_first_hour_19_a_version_that_does_not_exist_is_no_difference(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The exit code was 1, which means that rows differ."""
    result = ScriptedApi(monkeypatch, {}).run("data", "diff", "faq@1", "faq@9")
    assert result.exit_code == 2
    assert "There is no such thing." in result.output


def test_a_page_is_written_for_one_file(tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    code, said, _ = run(str(EXAMPLES / "broken.jsonl"), "--html", str(out))
    assert code == 1
    assert str(out) in said
    assert "truncated_json" in out.read_text(encoding="utf-8")
    assert run(str(EXAMPLES / "broken.jsonl"), "--json", "--html", str(out))[0] == 2
    assert run(*[str(EXAMPLES / "broken.jsonl")] * 2, "--html", str(out))[0] == 2


def test_a_base_model_is_found_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bases").mkdir()
    (tmp_path / "bases" / "tiny").symlink_to(base_model_dir())
    monkeypatch.setenv("TUNERY_CACHE_DIR", str(tmp_path))
    code, out, _ = run(str(EXAMPLES / "lighthouse.jsonl"), "--model", "tiny", "--json")
    assert code == 0
    assert json.loads(out)["tokens"]["rows"] == 277
    code, _, err = run(str(EXAMPLES / "lighthouse.jsonl"), "--model", "huge")
    assert code == 2
    assert "tiny" in err


def test_first_hour_low_a_benchmark_that_is_missing_is_an_error(tmp_path: Path) -> None:
    """The message had no "Error:" before it."""
    rows = tmp_path / "rows.jsonl"
    rows.write_text("{}\n")
    words = ["data", "check", str(rows), "--benchmarks", "gsm8k", "--data-dir", str(tmp_path)]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 2
    assert done.output.startswith("Error: --benchmarks: there is no benchmark 'gsm8k'")
