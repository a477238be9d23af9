"""Moved models beside the old ones, as one HTML file."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.unit.tunery.cli.scripted_api import ScriptedApi, refusal
from tests.unit.tunery.cli.test_import import environment
from tests.unit.tunery.exit_kit.test_teacher import with_models
from tunery.cli.main import main
from tunery.exit_kit.stand_in import account_stub

NEW = "ft:qwen:acme:faq:1"
MODELS = tuple(f"ft:gpt-4o-mini-2024-07-18:acme:m{number}:{number}" for number in range(3))


def folder_of_a_move(tmp_path: Path) -> None:
    """Read an account with three models, two of which still answer; two were submitted."""
    from click.testing import CliRunner

    with account_stub() as stub:
        with_models(stub, *MODELS)
        stub.answers[MODELS[0]] = lambda messages: _double(messages) + "."
        del stub.answers[MODELS[2]]
        words = ["import", "openai", "--to", str(tmp_path / "acme"), "--base-url", stub.url]
        done = CliRunner().invoke(
            main, [*words, "--teacher-budget", "1"], env=environment(tmp_path)
        )
    assert done.exit_code == 0, done.output
    (tmp_path / "acme/submitted.json").write_text(
        json.dumps({"ftjob-0": "ftjob-new", "ftjob-2": "ftjob-other"})
    )


def _double(messages: list[dict[str, Any]]) -> str:
    number = int(messages[-1]["content"].split()[2])
    return f"It is {2 * number}"


def job(name: str) -> dict[str, Any]:
    gate = {"verdict": "pass", "reasons": ["<b>kept</b>"]}
    return {"id": name, "status": "succeeded", "fine_tuned_model": NEW, "gate": gate}


def completion(text: str) -> dict[str, Any]:
    return {"choices": [{"message": {"role": "assistant", "content": text}}]}


def test_exit_kit_report_says_how_many_models_reach_the_old_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder_of_a_move(tmp_path)
    api = ScriptedApi(
        monkeypatch,
        {
            "GET /fine_tuning/jobs/ftjob-new": job("ftjob-new"),
            "GET /fine_tuning/jobs/ftjob-other": job("ftjob-other"),
            "POST /chat/completions": [
                *(completion("It is <i>wrong</i>") for _ in range(4)),
                refusal(503, "overloaded", "Try again."),
            ],
        },
    )
    page = tmp_path / "moved.html"
    words = ("import", "report", "--to", str(tmp_path / "acme"), "--output", str(page), "--json")
    first = json.loads(api.run(*words).stdout)
    assert first["title"] == "0 of 3 models reach 95 % of the old one"
    models = {model["job_id"]: model for model in first["models"]}
    assert len(models["ftjob-0"]["pairs"]) == 4
    assert models["ftjob-1"]["reason"] == "it was not submitted"
    assert models["ftjob-2"]["reason"] == "the old model has answered nothing: --teacher-budget"
    [scores] = models["ftjob-0"]["scores"]
    assert (scores["measure"], scores["certainty"]) == ("token_f1", "ruled out (95 %)")
    assert 0.9 < scores["old"] <= 1
    text = page.read_text(encoding="utf-8")
    assert "0 of 3 models reach 95 % of the old one" in text
    assert "&lt;i&gt;wrong&lt;/i&gt;" in text
    assert "<i>wrong" not in text
    assert "<b>kept" not in text
    assert not re.search(r"src=|href=|url\(|@import", text)


def test_exit_kit_report_asks_only_what_has_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder_of_a_move(tmp_path)
    answers = {
        "GET /fine_tuning/jobs/ftjob-new": job("ftjob-new"),
        "GET /fine_tuning/jobs/ftjob-other": job("ftjob-other"),
    }
    known = [
        json.loads(line)
        for line in (tmp_path / "acme/teacher.jsonl").read_text().splitlines()
        if "answer" in line and MODELS[0] in line
    ]
    with (tmp_path / "acme/answers.jsonl").open("w") as lines:
        for line in known:  # the new model says what the old one said
            answer = {"model": NEW, "question": line["question"], "answer": line["answer"]}
            lines.write(json.dumps(answer) + "\n")
    api = ScriptedApi(monkeypatch, answers)
    words = ("import", "report", "--to", str(tmp_path / "acme"), "--json")
    result = json.loads(api.run(*words).stdout)
    assert "POST /chat/completions" not in api.asked
    assert result["title"] == "1 of 3 models reach 95 % of the old one"
    moved = next(model for model in result["models"] if model["job_id"] == "ftjob-0")
    assert moved["agreement"] == 1
    assert moved["scores"][0]["certainty"] == "shown (95 %)"
    assert Path(result["path"]) == tmp_path / "acme/moved.html"


def test_exit_kit_report_of_a_folder_without_an_account_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = ScriptedApi(monkeypatch, {}).run("import", "report", "--to", str(tmp_path))
    assert result.exit_code == 1
    assert "run `tunery import openai` first" in result.output
