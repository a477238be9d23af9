"""Which steps a mirror is given, and when."""

from collections.abc import Mapping
from typing import Any

import pytest

from tests.unit.tunery.cli.scripted_api import ENVIRON, ScriptedApi
from tests.unit.tunery.mirrors.jobs import JOB_ID, job, step, stream
from tunery.cli._job_mirror import mirror_job
from tunery.client import Api
from tunery.local.errors import LocalError

PATH = f"GET /fine_tuning/jobs/{JOB_ID}"


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
    answers = {PATH: job(), f"{PATH}/metrics": stream(steps)}
    ended, count = mirrored(monkeypatch, answers, new, known)
    assert (ended["status"], count) == ("succeeded", 3)
    assert new.calls == ["begin", (1, 1), (2, 1), (3, 2), "succeeded"]
    assert known.calls == ["begin", (3, 2), "succeeded"]


def test_a_job_that_ended_before_its_first_step_has_parameters_and_an_outcome(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mirror = KeptMirror()
    answers = {PATH: job(status="cancelled", trained_tokens=None), f"{PATH}/metrics": stream([])}
    assert mirrored(monkeypatch, answers, mirror)[1] == 0
    assert mirror.calls == ["begin", "cancelled"]


def test_nothing_is_written_when_the_figures_are_not_kept_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mirror = KeptMirror()
    with pytest.raises(LocalError, match="not kept any more"):
        mirrored(monkeypatch, {PATH: job(), f"{PATH}/metrics": stream([])}, mirror)
    assert mirror.calls == []
