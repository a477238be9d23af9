"""`tunery file`: uploads that are waited for, rejected files, and long reports."""

import json
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.unit.tunery.cli.scripted_api import ScriptedApi, page
from tunery.cli import file as file_command

FILE = {
    "id": "file-1",
    "filename": "a[b].jsonl",
    "dataset": None,
    "sha256": "0" * 64,
    "bytes": 1_500,
    "status": "processed",
    "status_details": None,
    "created_at": 1,
    "validation": {"rows": 3, "dialect": "chat", "tokens": {"smol": 1_234}, "warnings": 0},
}
CHECKING = FILE | {"status": "uploaded", "validation": None}
REJECTED = FILE | {"status": "error", "status_details": "2 rows"}


def finding(row: int | None, code: str = "invalid_json") -> dict[str, Any]:
    return {"row": row, "line": row, "code": code, "message": "Not JSON.", "hint": "Mend it."}


def report(*errors: dict[str, Any]) -> dict[str, Any]:
    return {"report": {"errors": errors, "warnings": [finding(9, "short_row")]}}


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: None)


@pytest.fixture
def rows(tmp_path: Path) -> str:
    path = tmp_path / "rows.jsonl"
    path.write_text("{}\n")
    return str(path)


def test_security_m1_the_quota_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {"bytes": 8 * 1024**3, "files": 1_000, "uploads": 10}
    used = {"object": "storage", "bytes": 1_500, "files": 3, "uploads": 0, "limits": limits}
    api = ScriptedApi(monkeypatch, {"GET /storage": used})
    done = api.run("file", "quota")
    assert done.exit_code == 0, done.output
    assert "3 of 1,000" in done.output
    assert json.loads(api.run("file", "quota", "--json").output) == used


def test_an_upload_waits_until_the_file_is_checked(
    rows: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = {"POST /files": CHECKING, "GET /files/file-1": [CHECKING, CHECKING, FILE]}
    api = ScriptedApi(monkeypatch, answers)
    done = api.run("file", "upload", rows)
    assert done.exit_code == 0, done.output
    assert api.asked == ["POST /files", *["GET /files/file-1"] * 3]
    assert "1,234 (smol)" in done.output
    assert "a[b].jsonl" in done.output, "a name is no markup"


def test_no_wait_returns_at_once(rows: str, monkeypatch: pytest.MonkeyPatch) -> None:
    api = ScriptedApi(monkeypatch, {"POST /files": CHECKING})
    done = api.run("file", "upload", rows, "--no-wait", "--dataset", "faq")
    assert (done.exit_code, api.asked) == (0, ["POST /files"])
    assert b'name="dataset"\r\n\r\nfaq' in api.requests[0].content


def test_a_rejected_file_is_an_error_with_its_findings(
    rows: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = {
        "POST /files": CHECKING,
        "GET /files/file-1": REJECTED,
        "GET /files/file-1/validation": report(finding(2), finding(None)),
    }
    done = ScriptedApi(monkeypatch, answers).run("file", "upload", rows)
    assert done.exit_code == 1
    shown = [line.split()[:3] for line in done.output.splitlines()[-3:]]
    assert shown == [
        ["2", "2", "invalid_json"],
        ["file", "invalid_json", "Not"],
        ["9", "9", "short_row"],
    ]


def test_a_rejected_file_is_one_json_object(rows: str, monkeypatch: pytest.MonkeyPatch) -> None:
    api = ScriptedApi(monkeypatch, {"POST /files": CHECKING, "GET /files/file-1": REJECTED})
    done = api.run("file", "upload", rows, "--json")
    assert (done.exit_code, json.loads(done.stdout)) == (1, REJECTED)


def test_a_check_that_never_ends_names_the_log_to_read(
    rows: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_command, "WAIT_S_MAX", 2)
    api = ScriptedApi(monkeypatch, {"POST /files": CHECKING, "GET /files/file-1": CHECKING})
    done = api.run("file", "upload", rows)
    assert (done.exit_code, len(api.asked)) == (1, 5)
    assert "see `tunery logs ingest`" in done.output


def test_a_long_report_is_cut_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    errors = [finding(number) for number in range(1, 101)]
    answers = {"GET /files/file-1": REJECTED, "GET /files/file-1/validation": report(*errors)}
    shown = ScriptedApi(monkeypatch, answers).run("file", "show", "file-1").output
    assert shown.count("invalid_json") == file_command.FINDINGS_SHOWN_MAX == 50
    assert "… and 51 more" in shown
    whole = ScriptedApi(monkeypatch, answers).run("file", "show", "file-1", "--json").stdout
    assert len(json.loads(whole)["check"]["report"]["errors"]) == 100


@pytest.mark.parametrize("words", [[], ["--dataset", "faq"]])
def test_files_are_listed_also_before_their_check(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    api = ScriptedApi(monkeypatch, {"GET /files": page(FILE, CHECKING | {"id": "file-2"})})
    done = api.run("file", "list", *words)
    assert [line.split()[0] for line in done.output.splitlines()] == ["file", "file-1", "file-2"]
    assert api.requests[0].url.params.get("dataset") == (words[1] if words else None)


def test_a_path_that_is_not_there_is_not_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = ScriptedApi(monkeypatch, {})
    done = api.run("file", "upload", str(tmp_path / "none.jsonl"))
    assert (done.exit_code, api.asked) == (2, [])


def test_first_hour_23_a_file_is_downloaded_under_its_name_and_replaces_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    metrics = FILE | {"filename": "../step_metrics.csv", "bytes": 8}
    content = httpx.Response(200, content=b"step\n1\n2")
    api = ScriptedApi(
        monkeypatch, {"GET /files/file-1": metrics, "GET /files/file-1/content": content}
    )
    assert api.run("file", "download", "file-1").exit_code == 0
    assert (tmp_path / "step_metrics.csv").read_bytes() == b"step\n1\n2"
    again = api.run("file", "download", "file-1")
    assert (again.exit_code, "step_metrics.csv exists already" in again.output) == (1, True)
    (tmp_path / "out").mkdir()
    assert api.run("file", "download", "file-1", "out").exit_code == 0
    assert (tmp_path / "out" / "step_metrics.csv").exists()


def test_first_hour_23_a_file_that_cannot_be_read_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = ScriptedApi(monkeypatch, {"GET /files/file-1": FILE})
    done = api.run("file", "download", "file-1", str(tmp_path / "rows.jsonl"))
    assert (done.exit_code, "[not_found]" in done.output) == (1, True)
    assert list(tmp_path.iterdir()) == []
