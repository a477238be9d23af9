"""Old models of an account answer held-out questions, each once, within a budget of money."""

import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.tunery.cli.test_import import WAIT_S_MAX, environment, read, run
from tunery.exit_kit.stand_in import AccountStub, account_stub, rows


@pytest.fixture
def stub() -> Iterator[AccountStub]:
    with account_stub() as account:
        yield account


def with_models(stub: AccountStub, *models: str, rows_of: int = 60) -> None:
    """Give the account a job with held-out rows for each model, which answers in five words."""
    stub.add_file("file-a", rows(rows_of))
    for number, model in enumerate(models):
        stub.add_job(f"ftjob-{number}", "file-a", fine_tuned_model=model)
        stub.answers[model] = lambda messages: f"It is what {messages[-1]['content'][:8]}"


def billed_micro(stub: AccountStub) -> int:
    """What the questions cost at the prices of gpt-4o-mini, with answers of five words."""
    return sum(
        math.ceil(len(body["messages"][0]["content"].split()) * 0.3 + 5 * 1.2)
        for body in stub.questions
    )


def test_exit_kit_old_models_answer_held_out_questions_once(
    stub: AccountStub, tmp_path: Path
) -> None:
    with_models(stub, "ft:gpt-4o-mini-2024-07-18:acme:faq:1", "ft:gpt-4o-mini-2024-07-18:acme:b:2")
    result = read(stub, tmp_path, "--teacher-budget", "0.10")
    assert [asked["answered"] for asked in result["teacher"]] == [10, 10]
    assert len(stub.questions) == 20
    assert {body["temperature"] for body in stub.questions} == {0}
    spent = sum(asked["spent_micro"] for asked in result["teacher"])
    assert spent == billed_micro(stub)
    again = read(stub, tmp_path, "--teacher-budget", "0.10")
    assert again["teacher"] == result["teacher"]
    assert len(stub.questions) == 20


def test_exit_kit_a_budget_is_never_exceeded_and_more_of_it_goes_on(
    stub: AccountStub, tmp_path: Path
) -> None:
    with_models(stub, "ft:gpt-4o-mini-2024-07-18:acme:faq:1", "ft:gpt-4o-mini-2024-07-18:acme:b:2")
    none = read(stub, tmp_path, "--teacher-budget", "0")
    assert [asked["answered"] for asked in none["teacher"]] == [0, 0]
    assert "the budget has no room for the others" in none["teacher"][0]["reason"]
    assert stub.questions == []
    few = read(stub, tmp_path, "--teacher-budget", "0.0007")  # a question may cost 0.00064
    assert 0 < sum(asked["answered"] for asked in few["teacher"]) < 20
    assert billed_micro(stub) <= 700
    everything = read(stub, tmp_path, "--teacher-budget", "1")
    assert [asked["answered"] for asked in everything["teacher"]] == [10, 10]
    assert len(stub.questions) == 20
    wrong = run(stub, tmp_path, "--teacher-budget", "-1")
    assert "no amount from" in run(stub, tmp_path, "--teacher-budget", "NaN").output
    assert "-1 is no amount from 0 to 100,000 US dollars, such as 2.50" in wrong.output


def test_exit_kit_without_a_budget_no_model_is_asked_and_the_price_is_shown(
    stub: AccountStub, tmp_path: Path
) -> None:
    with_models(stub, "ft:gpt-4o-mini-2024-07-18:acme:faq:1")
    output = run(stub, tmp_path).output
    assert "0 of 10 questions answered; the others cost at most 0.00" in output
    assert "--teacher-budget" in output
    assert stub.questions == []


def test_exit_kit_a_retired_model_and_one_without_a_price_are_named(
    stub: AccountStub, tmp_path: Path
) -> None:
    with_models(stub, "ft:gpt-4o-mini-2024-07-18:acme:faq:1", "ft:unpriced:acme:b:2")
    del stub.answers["ft:gpt-4o-mini-2024-07-18:acme:faq:1"]
    own = tmp_path / "bases.toml"
    own.write_text('[[replacement]]\nold = ["*"]\nnew = ["mine"]\n')
    words = ("--teacher-budget", "1", "--bases", str(own))
    unpriced, retired = read(stub, tmp_path, *words)["teacher"]
    assert retired["reason"].startswith("404: The model `ft:gpt-4o-mini-2024-07-18:acme:faq:1`")
    assert retired["spent_micro"] == 0
    assert unpriced["reason"] == (
        "no price is named for ft:unpriced:acme:b:2: add it to a file for --prices"
    )
    table = tmp_path / "prices.toml"
    table.write_text('[[price]]\nmodels = ["ft:unpriced*"]\ninput = 1\noutput = 2.5\n')
    priced = read(stub, tmp_path, *words, "--prices", str(table))["teacher"][0]
    assert priced["answered"] == 10
    table.write_text("[[price]]\nmodels = 3\n")
    assert "is no table of prices" in run(stub, tmp_path, "--prices", str(table)).output


def test_exit_kit_limits_cost_nothing_and_a_failure_counts_with_its_most(
    stub: AccountStub, tmp_path: Path
) -> None:
    model = "ft:gpt-4o-mini-2024-07-18:acme:faq:1"
    with_models(stub, model)
    read(stub, tmp_path)
    failures = iter([True, False])

    def sometimes(messages: list[dict[str, Any]]) -> str:
        if next(failures, False):
            raise RuntimeError("the connection ends")
        return f"It is {messages[-1]['content'][:4]}"

    stub.answers[model] = sometimes
    asked_before = len(stub.asked)
    stub.before = lambda path: (
        setattr(stub, "limited", 1)
        if path == "/chat/completions" and len(stub.asked) == asked_before + 4
        else None
    )
    [asked] = read(stub, tmp_path, "--teacher-budget", "1")["teacher"]
    assert asked["answered"] == 10
    lines = (tmp_path / "acme/teacher.jsonl").read_text().splitlines()
    ends = [json.loads(line) for line in lines]
    most = max(line["micro"] for line in ends)
    answered = sum(1 for line in ends if "answer" in line)
    assert answered == 10
    assert most < asked["spent_micro"] < 2 * most  # one request is counted with its most


def test_exit_kit_a_teacher_that_is_killed_is_paid_for_and_asked_again(
    stub: AccountStub, tmp_path: Path
) -> None:
    model = "ft:gpt-4o-mini-2024-07-18:acme:faq:1"
    with_models(stub, model)
    kept = {name: value for name, value in os.environ.items() if "OPENAI" not in name}
    env = kept | {name: value for name, value in environment(tmp_path).items() if value is not None}
    words = ("import", "openai", "--to", str(tmp_path / "acme"), "--base-url", stub.url, "--json")
    command = [sys.executable, "-m", "tunery.cli.main", *words, "--teacher-budget", "1"]
    process: list[subprocess.Popen[bytes]] = []

    def kill(messages: list[dict[str, Any]]) -> str:
        if len(stub.questions) == 4:
            process[0].kill()
            process[0].wait(WAIT_S_MAX)
        return f"It is {messages[-1]['content'][:4]}"

    stub.answers[model] = kill
    process.append(subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL))
    assert process[0].wait(WAIT_S_MAX) == -signal.SIGKILL
    [asked] = read(stub, tmp_path, "--teacher-budget", "1")["teacher"]
    assert asked["answered"] == 10
    contents = [body["messages"][0]["content"] for body in stub.questions]
    assert sorted(contents.count(content) for content in contents) == [1] * 9 + [2] * 2
    assert asked["spent_micro"] > 600  # the one without an end counts with its most
