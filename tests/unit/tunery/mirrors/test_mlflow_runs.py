"""A job in MLflow, where a command is run again or was interrupted. A real server is asked by
`make test-clients`.
"""

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.unit.tunery.mirrors.jobs import ENDED, JOB_ID, job, step
from tunery.cli._mlflow import MlflowServer
from tunery.local.errors import LocalError
from tunery.mirrors.mlflow_runs import METRICS_MAX, MlflowRun, experiment_id


class FakeMlflow:
    """Experiments and runs by the rules of MLflow's REST interface that matter here."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.experiments: dict[str, str] = {}
        self.runs: list[dict[str, Any]] = []
        self.metrics: list[tuple[str, int, float]] = []
        self.parameters: dict[str, str] = {}
        self.requests = 0
        client = httpx.Client

        def connected(**options: Any) -> httpx.Client:
            return client(**{**options, "transport": httpx.MockTransport(self._answer)})

        monkeypatch.setattr("tunery.cli._mlflow.httpx.Client", connected)

    @property
    def tags(self) -> dict[str, str]:
        """Tags of the only run."""
        (run,) = self.runs
        return {tag["key"]: tag["value"] for tag in run["data"]["tags"]}

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.requests += 1
        body = json.loads(request.content) if request.content else {}
        if request.url.path.endswith("get-by-name"):
            name = request.url.params["experiment_name"]
            if name not in self.experiments:
                return httpx.Response(404, json={"error_code": "RESOURCE_DOES_NOT_EXIST"})
            known = {"experiment_id": self.experiments[name]}
            return httpx.Response(200, json={"experiment": known})
        answers: dict[str, Callable[[dict[str, Any]], Any]] = {
            "experiments/create": self._create_experiment,
            "runs/search": self._search,
            "runs/create": self._create_run,
            "runs/log-batch": self._log,
            "runs/update": self._update,
        }
        end = "/".join(request.url.path.split("/")[-2:])
        return httpx.Response(200, json=answers[end](body) or {})

    def _create_experiment(self, body: dict[str, Any]) -> dict[str, Any]:
        self.experiments[body["name"]] = str(len(self.experiments))
        return {"experiment_id": self.experiments[body["name"]]}

    def _search(self, body: dict[str, Any]) -> dict[str, Any]:
        runs = [run for run in self.runs if f"'{run['info']['run_name']}'" in body["filter"]]
        return {"runs": runs} if runs else {}

    def _create_run(self, body: dict[str, Any]) -> dict[str, Any]:
        info = {"run_id": f"run-{len(self.runs)}", "run_name": body["run_name"]}
        self.runs.append({"info": info, "data": {"tags": body["tags"]}})
        return {"run": self.runs[-1]}

    def _update(self, body: dict[str, Any]) -> None:
        self.runs[0]["info"].update(body)

    def _log(self, body: dict[str, Any]) -> None:
        metrics, parameters = body.get("metrics", ()), body.get("params", ())
        assert len(metrics) <= METRICS_MAX
        self.metrics += [(metric["key"], metric["step"], metric["value"]) for metric in metrics]
        for parameter in parameters:
            known = self.parameters.setdefault(parameter["key"], parameter["value"])
            assert known == parameter["value"], "MLflow refuses another value of a parameter"
        tags = {**self.tags, **{tag["key"]: tag["value"] for tag in body.get("tags", ())}}
        self.runs[0]["data"]["tags"] = [{"key": key, "value": tags[key]} for key in tags]


def mirror(steps: int, *, ends: bool = True, status: str = "succeeded") -> MlflowRun:
    """A command that writes a job up to a step."""
    target = MlflowRun(MlflowServer("http://user:secret@mlflow/", "--mlflow"), "lamps")
    last = target.begin(job())
    for number in range(last + 1, steps + 1):
        target.add(step(number))
    if ends:
        target.end(job(status=status))
    target.close()
    return target


def test_a_run_has_parameters_steps_and_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    server = FakeMlflow(monkeypatch)
    assert mirror(3).destination == "http://mlflow/#/experiments/0/runs/run-0"
    assert [*server.experiments] == ["lamps"]
    assert server.parameters["beta"] == "0.1"
    losses = [metric for metric in server.metrics if metric[0] == "train/loss"]
    assert losses == [("train/loss", 1, 2.0), ("train/loss", 2, 1.0), ("train/loss", 3, 0.0)]
    assert server.tags["tunery.job_id"] == JOB_ID
    assert server.tags["tunery.gate"] == "pass"
    info = server.runs[0]["info"]
    assert (info["status"], info["end_time"]) == ("FINISHED", ENDED * 1_000)


def test_a_command_that_is_run_again_or_goes_on_writes_no_step_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = FakeMlflow(monkeypatch)
    monkeypatch.setattr("tunery.mirrors.mlflow_runs.FLUSH_S", 0)
    mirror(2, ends=False)  # interrupted
    assert server.tags["tunery.last_step"] == "2"
    mirror(3)
    mirror(3)
    assert len(server.runs) == 1
    assert [number for key, number, _ in server.metrics if key == "train/loss"] == [1, 2, 3]


def test_many_steps_are_sent_in_few_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    server = FakeMlflow(monkeypatch)
    monkeypatch.setattr("tunery.mirrors.mlflow_runs.FLUSH_S", 1_000)
    mirror(1_000)
    assert len(server.metrics) == len(set(server.metrics)) == 7_000
    assert server.requests < 20


@pytest.mark.parametrize(("status", "shown"), [("failed", "FAILED"), ("cancelled", "KILLED")])
def test_a_job_without_a_result_is_no_finished_run(
    status: str, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = FakeMlflow(monkeypatch)
    mirror(1, status=status)
    assert server.runs[0]["info"]["status"] == shown


def test_an_address_that_is_no_url_is_named() -> None:
    with pytest.raises(LocalError, match="is no URL"):
        MlflowServer("http://host:port", "--mlflow")


class RacedServer:
    """Another run makes the experiment between the two calls of this one."""

    url = "http://mlflow"

    def __init__(self) -> None:
        self.answers: list[dict[str, Any]] = [{}, {}, {"experiment": {"experiment_id": "7"}}]

    def call(
        self, method: str, path: str, body: Any = None, permitted: str | None = None
    ) -> dict[str, Any]:
        return self.answers.pop(0)

    def close(self) -> None:
        """Nothing to free."""


def test_an_experiment_that_another_run_makes_at_the_same_time_is_found() -> None:
    server = RacedServer()
    assert experiment_id(server, "lamps") == "7"
    assert server.answers == []
