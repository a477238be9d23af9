"""Names that the API knows complete what is typed."""

from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete

from tests.unit.tunery.cli.scripted_api import ENVIRON, ScriptedApi, page, refusal
from tunery.cli.main import main

JOBS = page({"id": "ftjob-1a", "status": "running"}, {"id": "ftjob-2b", "status": "failed"})


def completions(words: list[str], incomplete: str) -> list[tuple[str, str | None]]:
    completion = ShellComplete(main, {}, "tunery", "_TUNERY_COMPLETE")
    return [(item.value, item.help) for item in completion.get_completions(words, incomplete)]


@pytest.fixture(autouse=True)
def connected(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRON.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize("words", [["job", "show"], ["job", "compare", "ftjob-2b"]])
def test_first_hour_ids_of_jobs_are_completed(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ScriptedApi(monkeypatch, {"GET /fine_tuning/jobs": JOBS})
    assert completions(words, "ftjob-") == [("ftjob-1a", "running"), ("ftjob-2b", "failed")]
    assert completions(words, "ftjob-2") == [("ftjob-2b", "failed")]


def test_first_hour_base_models_and_tenants_are_completed(monkeypatch: pytest.MonkeyPatch) -> None:
    bases = {"data": [{"id": "smol"}, {"id": "tiny"}]}
    tenants = page({"id": "acme", "name": "Acme Ltd"})
    ScriptedApi(monkeypatch, {"GET /bases": bases, "GET /tenants": tenants})
    assert completions(["job", "submit", "--model"], "s") == [("smol", None)]
    assert completions(["base", "alias"], "") == [("smol", None), ("tiny", None)]
    assert completions(["tenant", "plan"], "") == [("acme", "Acme Ltd")]


def test_first_hour_without_an_answer_nothing_is_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ScriptedApi(monkeypatch, {"GET /tenants": refusal(403, "forbidden", "No.")})
    assert completions(["tenant", "plan"], "") == []
    monkeypatch.delenv("OPENAI_API_KEY")
    monkeypatch.setenv("TUNERY_DATA_DIR", str(tmp_path))
    assert completions(["job", "show"], "") == []


def test_first_hour_logs_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNERY_DATA_DIR", str(tmp_path))
    (tmp_path / "logs").mkdir()
    for name in ("gateway.log", "kafka.log"):
        (tmp_path / "logs" / name).touch()
    assert completions(["logs"], "") == [("gateway", None), ("kafka", None)]
    assert completions(["logs"], "k") == [("kafka", None)]


def test_first_hour_every_command_that_names_a_job_completes_it() -> None:
    group = main.get_command(click.Context(main), "job")
    assert isinstance(group, click.Group)
    named = [
        parameter
        for command in group.commands.values()
        for parameter in command.params
        if parameter.name in ("job_id", "job_ids")
    ]
    assert len(named) > 10
    assert {type(parameter.type).__name__ for parameter in named} == {"KnownName"}
