"""The command `tunery job mirror`."""

import json
from pathlib import Path

import pytest

from tests.unit.tunery.cli.scripted_api import ScriptedApi
from tests.unit.tunery.mirrors.jobs import JOB_ID, job, step, stream

PATH = f"GET /fine_tuning/jobs/{JOB_ID}"
ANSWERS = {PATH: job(), f"{PATH}/metrics": stream([step(1), step(2)])}


def test_a_job_is_written_for_tensorboard(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    api = ScriptedApi(monkeypatch, ANSWERS)
    words = ("job", "mirror", JOB_ID, "--tensorboard", str(tmp_path / "runs"))
    result = api.run(*words, "--json")
    assert result.exit_code == 0, result.output
    shown = json.loads(result.output)
    assert (shown["job"], shown["status"], shown["steps"]) == (JOB_ID, "succeeded", 2)
    assert Path(shown["tensorboard"]).stat().st_size > 0
    assert "succeeded" in api.run(*words).output


def test_a_command_without_a_destination_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    result = ScriptedApi(monkeypatch, ANSWERS).run("job", "mirror", JOB_ID)
    assert result.exit_code == 2
    assert "--tensorboard, --mlflow or --wandb-offline" in result.output


def test_the_fix_is_named_where_the_package_of_wandb_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tunery.mirrors.wandb_runs.PACKAGE", "no_such_package")
    words = ("job", "mirror", JOB_ID, "--wandb-offline", str(tmp_path))
    result = ScriptedApi(monkeypatch, ANSWERS).run(*words)
    assert result.exit_code == 1
    assert "fix: install tunery's extra `mirrors`" in result.output


def test_an_mlflow_server_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("job", "mirror", JOB_ID, "--mlflow", "http://127.0.0.1:9")
    result = ScriptedApi(monkeypatch, ANSWERS).run(*words)
    assert result.exit_code == 1
    assert "127.0.0.1:9 does not answer" in result.output
    assert "--mlflow URL" in result.output


def test_a_running_job_is_followed_and_the_command_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    running = job(status="running", finished_at=None)
    api = ScriptedApi(monkeypatch, {**ANSWERS, PATH: [running, running, job()]})
    result = api.run("job", "mirror", JOB_ID, "--tensorboard", str(tmp_path), "--json")
    assert "is running: its steps are written until it ends." in result.stderr
    assert json.loads(result.stdout)["status"] == "succeeded"


def test_a_folder_that_cannot_be_written_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / JOB_ID).touch()
    words = ("job", "mirror", JOB_ID, "--tensorboard", str(tmp_path))
    result = ScriptedApi(monkeypatch, ANSWERS).run(*words)
    assert result.exit_code == 1
    assert f"{tmp_path / JOB_ID} cannot be written" in result.output


def test_an_interrupted_command_says_how_to_go_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tunery.cli._job_mirror.mirror_job", interrupted)
    words = ("job", "mirror", JOB_ID, "--tensorboard", str(tmp_path))
    result = ScriptedApi(monkeypatch, ANSWERS).run(*words)
    assert result.exit_code == 130
    assert "The same command again writes what is missing." in result.output
