"""The command `tunery job mirror`."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.unit.tunery.cli.scripted_api import ENVIRON, ScriptedApi
from tests.unit.tunery.mirrors.jobs import JOB_ID, job, step, stream
from tunery.cli._job_mirror import mirror_job
from tunery.client import Api
from tunery.local.errors import LocalError

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


METRICS_PATH = f"GET /fine_tuning/jobs/{JOB_ID}"


class KeptMirror:
    """Keeps what is written, from a step on that an earlier command has written."""

    destination = "memory"

    def __init__(self, last_step: int = 0) -> None:
        self.last_step = last_step
        self.calls: list[Any] = []

    def begin(self, job: Mapping[str, Any]) -> int:
        self.calls.append("begin")
        return self.last_step

    def add(self, step: Mapping[str, Any]) -> None:
        self.calls.append((step["step"], step["attempt"]))

    def end(self, job: Mapping[str, Any]) -> None:
        self.calls.append(job["status"])

    def close(self) -> None:
        pass


def mirrored(
    monkeypatch: pytest.MonkeyPatch, answers: dict[str, Any], *mirrors: KeptMirror
) -> tuple[Any, int]:
    ScriptedApi(monkeypatch, answers)
    from tunery import client

    api: Api
    with client.Api(ENVIRON["OPENAI_BASE_URL"], "k") as api:
        return mirror_job(api, JOB_ID, mirrors)


def test_steps_that_come_again_after_a_lost_attempt_are_written_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps = [step(1), step(2), step(2, attempt=2), step(3, attempt=2)]
    new, known = KeptMirror(), KeptMirror(2)
    answers = {METRICS_PATH: job(), f"{METRICS_PATH}/metrics": stream(steps)}
    ended, count = mirrored(monkeypatch, answers, new, known)
    assert (ended["status"], count) == ("succeeded", 3)
    assert new.calls == ["begin", (1, 1), (2, 1), (3, 2), "succeeded"]
    assert known.calls == ["begin", (3, 2), "succeeded"]


def test_a_job_that_ended_before_its_first_step_has_parameters_and_an_outcome(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mirror = KeptMirror()
    answers = {
        METRICS_PATH: job(status="cancelled", trained_tokens=None),
        f"{METRICS_PATH}/metrics": stream([]),
    }
    assert mirrored(monkeypatch, answers, mirror)[1] == 0
    assert mirror.calls == ["begin", "cancelled"]


def test_nothing_is_written_when_the_figures_are_not_kept_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mirror = KeptMirror()
    with pytest.raises(LocalError, match="not kept any more"):
        mirrored(monkeypatch, {METRICS_PATH: job(), f"{METRICS_PATH}/metrics": stream([])}, mirror)
    assert mirror.calls == []
