"""Moved models beside the old ones, as one HTML file."""

import json
import re
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from tests.score_models import Reply, judging, said
from tests.unit.services.trainer.effect.test_judging import PAIRS
from tests.unit.tunery.cli.scripted_api import ScriptedApi, refusal
from tests.unit.tunery.cli.test_import import environment
from tests.unit.tunery.exit_kit.test_teacher import with_models
from tunery.cli.main import main
from tunery.comparison.models import HeldOutQuestion
from tunery.exit_kit.questions import questions_of
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
    known = answers_of(tmp_path, MODELS[0])
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


def prefers(words: str) -> Callable[[str], Reply]:
    """A judge that likes answers with these words, and knows its labelled pairs."""

    def better(text: str) -> Reply:
        asked = json.loads(text)
        liked = [any(word in asked[side] for word in ("good", words)) for side in SIDES]
        choice = "tie" if liked[0] == liked[1] else "AB"[liked.index(True)]
        return said(json.dumps({"better": choice}))

    return better


SIDES = ("answer_a", "answer_b")


@pytest.mark.parametrize(
    ("words", "answer", "verdict", "reached"),
    [("!", "It is {}!", "better", 1), (".", "It is {}", "worse", 0)],
)
def test_exit_kit_a_judge_compares_old_and_new_answers_in_both_orders_once(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: str,
    answer: str,
    verdict: str,
    reached: int,
) -> None:
    folder_of_a_move(tmp_path)
    monkeypatch.setenv("TUNERY_JUDGE_KEY", "sk-judge")
    labelled = tmp_path / "labelled.jsonl"
    labelled.write_bytes(PAIRS)
    known = {line["question"] for line in answers_of(tmp_path, MODELS[0])}
    with (tmp_path / "acme/answers.jsonl").open("w") as lines:
        for question in held_out(tmp_path):
            if question.id in known:
                text = answer.format(question.reference.split()[2].rstrip("."))
                line = {"model": NEW, "question": question.id, "answer": text}
                lines.write(json.dumps(line) + "\n")
    scripted = {
        "GET /fine_tuning/jobs/ftjob-new": job("ftjob-new"),
        "GET /fine_tuning/jobs/ftjob-other": job("ftjob-other"),
    }
    with judging(prefers(words)) as judge:
        api = ScriptedApi(monkeypatch, scripted)
        command = ("import", "report", "--to", str(tmp_path / "acme"), "--json")
        named = ("--judge", "judge-1", "--judge-pairs", str(labelled), "--judge-url", judge.url)
        first = api.run(*command, *named)
        asked = len(judge.asked)
        again = api.run(*command, *named)
        page = unescape((tmp_path / "acme/moved.html").read_text())
        own = json.loads(api.run(*command, "--judge", NEW, *named[2:]).stdout)
        assert judge.keys == {"Bearer sk-judge"}
        assert len(judge.asked) == asked  # nothing twice, and a compared model is never asked
    result = json.loads(first.stdout)
    assert again.stdout == first.stdout
    assert result["title"] == f"{reached} of 3 models reach 95 % of the old one"
    moved = next(model for model in result["models"] if model["job_id"] == "ftjob-0")
    assert moved["judge"]["verdict"] == verdict
    assert moved["judge"]["wins"] + moved["judge"]["losses"] == len(known)
    whose = "new" if verdict == "better" else "old"
    assert f"a judge prefers the {whose} model's answers" in moved["judge"]["reasons"][0]
    assert moved["judge"]["reasons"][0] in page
    unused = next(model for model in own["models"] if model["job_id"] == "ftjob-0")["judge"]
    assert unused["verdict"] == "unused"
    assert "does not judge its own answers" in unused["reasons"][0]
    assert "sk-judge" not in "".join(
        path.read_text() for path in (tmp_path / "acme").rglob("*") if path.is_file()
    )


def test_exit_kit_a_judge_that_disagrees_with_people_or_has_no_pairs_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder_of_a_move(tmp_path)
    labelled = tmp_path / "labelled.jsonl"
    labelled.write_bytes(PAIRS)
    scripted = {
        "GET /fine_tuning/jobs/ftjob-new": job("ftjob-new"),
        "GET /fine_tuning/jobs/ftjob-other": job("ftjob-other"),
        "POST /chat/completions": completion("It is 1"),
    }
    command = ("import", "report", "--to", str(tmp_path / "acme"), "--json", "--judge", "judge-1")
    with judging(lambda _text: said('{"better": "A"}')) as judge:
        api = ScriptedApi(monkeypatch, scripted)
        words = ("--judge-pairs", str(labelled), "--judge-url", judge.url)
        result = json.loads(api.run(*command, *words).stdout)
    moved = next(model for model in result["models"] if model["job_id"] == "ftjob-0")
    assert moved["judge"]["verdict"] == "unused"
    assert "the order alone decides 100 %" in moved["judge"]["reasons"][0]
    assert "--judge needs --judge-pairs" in api.run(*command).output
    labelled.write_text("{}")
    refused = api.run(*command, "--judge-pairs", str(labelled))
    assert "cannot qualify a judge: it has 1 pairs" in refused.output
    clear = api.run(*command, *words[:2], "--judge-url", "http://judge.example.com/v1")
    assert "would send the key in the clear" in clear.output


def answers_of(tmp_path: Path, model: str) -> list[dict[str, Any]]:
    """Return what an old model has answered."""
    lines = (tmp_path / "acme/teacher.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines if '"answer"' in line and model in line]


def held_out(tmp_path: Path) -> list[HeldOutQuestion]:
    return questions_of(tmp_path / "acme/data/file-a.held-out.jsonl")


def test_exit_kit_report_of_a_folder_without_an_account_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = ScriptedApi(monkeypatch, {}).run("import", "report", "--to", str(tmp_path))
    assert result.exit_code == 1
    assert "run `tunery import openai` first" in result.output
