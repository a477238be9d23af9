"""A job as a run of an MLflow server, by its REST interface."""

import re
import time
from collections.abc import Iterable, Mapping
from typing import Any, Final, Protocol
from urllib.parse import quote

from tunery.mirrors.figures import FIGURES, Scalar, parameters, step_figures, summary

JOB_TAG: Final = "tunery.job_id"
STEP_TAG: Final = "tunery.last_step"
METRICS_MAX: Final = 1_000  # of a request, by MLflow's own limit
PARAMETERS_MAX: Final = 100  # of a request, by MLflow's own limit
VALUE_CHARACTERS_MAX: Final = 5_000  # of a parameter or a tag: MLflow takes 6,000 and more
FLUSH_S: Final = 2.0
FOREIGN: Final = re.compile(r"[^A-Za-z0-9_\-. /:]")  # what a name may not have
STATUSES: Final[Mapping[str, str]] = {
    "succeeded": "FINISHED",
    "failed": "FAILED",
    "cancelled": "KILLED",
}


NOT_FOUND: Final = "RESOURCE_DOES_NOT_EXIST"
EXISTS: Final = "RESOURCE_ALREADY_EXISTS"


class MlflowCalls(Protocol):
    """An MLflow server by its REST interface. What a call raises, `MlflowRun` lets pass."""

    @property
    def url(self) -> str:
        """Its address, as it may be shown."""
        ...

    def call(
        self, method: str, path: str, body: Any = None, permitted: str | None = None
    ) -> dict[str, Any]:
        """The answer; empty for an error with the code that is permitted."""
        ...

    def close(self) -> None:
        """Free the connections."""
        ...


def experiment_id(server: MlflowCalls, name: str) -> str:
    """The id of the experiment with this name, which is created where there is none."""
    query = f"mlflow/experiments/get-by-name?experiment_name={quote(name, safe='')}"
    known = server.call("GET", query, permitted=NOT_FOUND)
    if "experiment" not in known:
        body = {"name": name}
        created = server.call("POST", "mlflow/experiments/create", body, permitted=EXISTS)
        if created:
            return str(created["experiment_id"])
        known = server.call("GET", query)  # another one has made it meanwhile
    return str(known["experiment"]["experiment_id"])


class MlflowRun:
    """The run whose tag `tunery.job_id` names the job, in an experiment.

    Steps are sent together, at most a second or two after the next step has come. The tag
    `tunery.last_step` says where to go on; a step that is sent twice is the same row in MLflow.
    """

    def __init__(self, server: MlflowCalls, experiment: str) -> None:
        self._server, self._experiment = server, experiment
        self._experiment_id = self._run_id = ""
        self._known: set[str] = set()
        self._metrics: list[dict[str, Any]] = []
        self._last_step = 0
        self._sent_at = time.monotonic()

    def begin(self, job: Mapping[str, Any]) -> int:
        """Find or create the run of a job, and log its parameters."""
        self._experiment_id = experiment_id(self._server, self._experiment)
        run = self._known_run(job["id"]) or self._new_run(job)
        self._run_id = str(run["info"]["run_id"])
        self._known = {entry["key"] for entry in run["data"].get("params", ())}
        self._log_parameters(job)
        tags = {tag["key"]: tag["value"] for tag in run["data"].get("tags", ())}
        self._last_step = int(tags.get(STEP_TAG, 0))
        return self._last_step

    def add(self, step: Mapping[str, Any]) -> None:
        """Send the figures of a step, at once or with the next ones."""
        self._last_step = int(step["step"])
        at = {"timestamp": step["created_at"] * 1_000, "step": self._last_step}
        self._metrics += [
            {"key": name, "value": value, **at} for name, value in step_figures(step).items()
        ]
        is_full = len(self._metrics) > METRICS_MAX - len(FIGURES)
        if is_full or time.monotonic() - self._sent_at >= FLUSH_S:
            self.flush()

    def end(self, job: Mapping[str, Any]) -> None:
        """Send what is left, the summary as tags, and the outcome."""
        self.flush()
        self._log_parameters(job)  # some were not known while it waited
        tags = {f"tunery.{name}": value for name, value in summary(job).items()}
        self._log(tags=[*_entries(tags)])
        outcome = {"run_id": self._run_id, "status": STATUSES.get(job["status"], "FINISHED")}
        ended = job["finished_at"]
        times = {} if ended is None else {"end_time": ended * 1_000}
        self._server.call("POST", "mlflow/runs/update", {**outcome, **times})

    def close(self) -> None:
        self._server.close()

    @property
    def destination(self) -> str:
        return f"{self._server.url}/#/experiments/{self._experiment_id}/runs/{self._run_id}"

    def _known_run(self, job_id: str) -> dict[str, Any] | None:
        query = {
            "experiment_ids": [self._experiment_id],
            "filter": f"tags.`{JOB_TAG}` = '{job_id}'",
            "max_results": 1,
        }
        runs = self._server.call("POST", "mlflow/runs/search", query).get("runs") or []
        return dict(runs[0]) if runs else None

    def _new_run(self, job: Mapping[str, Any]) -> dict[str, Any]:
        body = {
            "experiment_id": self._experiment_id,
            "run_name": job["id"],
            "start_time": job["created_at"] * 1_000,
            "tags": [{"key": JOB_TAG, "value": job["id"]}],
        }
        return dict(self._server.call("POST", "mlflow/runs/create", body)["run"])

    def _log_parameters(self, job: Mapping[str, Any]) -> None:
        """Log the parameters that are known and not there yet; MLflow takes no other value."""
        known = [entry for entry in _entries(parameters(job)) if entry["key"] not in self._known]
        self._known.update(entry["key"] for entry in known)
        for start in range(0, len(known), PARAMETERS_MAX):
            self._log(params=known[start : start + PARAMETERS_MAX])

    def flush(self) -> None:
        """Log the steps that were not sent yet, and in the same request up to where they are."""
        if self._metrics:
            tag = {"key": STEP_TAG, "value": str(self._last_step)}
            self._log(metrics=self._metrics, tags=[tag])
        self._metrics, self._sent_at = [], time.monotonic()

    def _log(self, **entries: list[dict[str, Any]]) -> None:
        self._server.call("POST", "mlflow/runs/log-batch", {"run_id": self._run_id, **entries})


def _entries(values: Mapping[str, Scalar]) -> Iterable[dict[str, Any]]:
    """Parameters or tags as MLflow takes them."""
    for name, value in values.items():
        text = str(value)[:VALUE_CHARACTERS_MAX]
        yield {"key": FOREIGN.sub("_", name), "value": text}
