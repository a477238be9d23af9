"""`tunery gate import` and `tunery gate benchmarks`: what is sent, and what is shown."""

from hashlib import sha256
from pathlib import Path

import pytest

from tests.unit.tunery.cli.scripted_api import ScriptedApi, page
from tests.unit.tunery.data.importing import published
from tunery.benchmarks.task import read_task

ADDED = {
    "id": "ours",
    "task": "mmlu",
    "kind": "choices",
    "items": 24,
    "shots": 5,
    "sha256": "a" * 64,
}


def test_a_folder_is_imported_and_sent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("test", "dev"):
        (tmp_path / name).mkdir()
    tests, examples = published.mmlu(tmp_path)
    for path in tests:
        path.rename(tmp_path / "test" / path.name)
    for path in examples:
        path.rename(tmp_path / "dev" / path.name)
    api = ScriptedApi(monkeypatch, {"PUT /gate/benchmarks/ours": ADDED})
    words = ("mmlu", str(tmp_path / "test"), "--examples", str(tmp_path / "dev"), "--name", "ours")
    done = api.run("gate", "import", *words)
    assert done.exit_code == 0, done.output
    assert "24" in done.output
    task = read_task(api.requests[-1].content)
    assert (task.header.task, len(task.items), task.header.shots) == ("mmlu", 24, 5)
    written = tmp_path / "mmlu.jsonl"
    api.run("gate", "import", *words[:4], "--output", str(written))
    assert sha256(written.read_bytes()).digest() == sha256(api.requests[-1].content).digest()
    assert len(api.requests) == 1, "a file is written, and nothing sent"


def test_the_refusal_of_an_import_names_the_problem(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = published.gsm8k(tmp_path / "test.jsonl")
    done = ScriptedApi(monkeypatch, {}).run("gate", "import", "gsm8k", str(path))
    assert (done.exit_code, "--examples" in done.output) == (1, True)
    assert "Traceback" not in done.output


def test_benchmarks_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    api = ScriptedApi(monkeypatch, {"GET /gate/benchmarks": page(ADDED)})
    shown = api.run("gate", "benchmarks").output
    assert "ours" in shown
    assert "aaaaaaaaaaaa" in shown
