"""An MLflow server by its REST interface: a downloaded model as a version in its registry."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import httpx

from tunery.local.errors import LocalError
from tunery.mirrors.mlflow_runs import EXISTS, experiment_id

LINEAGE: Final = "lineage.json"
EXPERIMENT: Final = "tunery"
FOLDER: Final = "model"  # of the artifacts of a run
PROXIED: Final = "mlflow-artifacts:"
CHUNK_BYTES: Final = 1 << 20
ANSWER_S_MAX: Final = 60
UPLOAD_S_MAX: Final = 3_600
#: fields of a lineage that a run gets as parameters
PARAMETERS: Final = (
    *("base_id", "base_sha256", "dataset_version", "training_sha256", "config_sha256"),
    *("configuration", "job_id", "method", "start_id", "steps"),
)


class MlflowServer:
    """An MLflow server. It takes the credentials that MLflow's own client takes, by the same
    variables of the environment. option: of ours that names it. Raises LocalError for no URL.
    """

    def __init__(self, url: str, option: str = "--server") -> None:
        headers, auth = {}, None
        if token := os.environ.get("MLFLOW_TRACKING_TOKEN"):
            headers["authorization"] = f"Bearer {token}"
        elif user := os.environ.get("MLFLOW_TRACKING_USERNAME"):
            auth = (user, os.environ.get("MLFLOW_TRACKING_PASSWORD", ""))
        try:
            address = httpx.URL(url)
        except httpx.InvalidURL as error:
            text = f"{url} is no URL: {error}"
            raise LocalError(text, f"name an MLflow server with {option} URL") from error
        self._http = httpx.Client(
            base_url=f"{url.rstrip('/')}/api/2.0", headers=headers, auth=auth, timeout=ANSWER_S_MAX
        )
        self.url = str(address.copy_with(userinfo=b"")).rstrip("/")  # shown, so without a password
        self._fix = f"name an MLflow server with {option} URL"

    def __enter__(self) -> "MlflowServer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def register(self, folder: Path, name: str | None, alias: str | None) -> dict[str, Any]:
        """Upload the files of a folder, and register them as the next version of a model.

        name: name of the model; None: made of base model and suffix
        alias: name of the version from now on

        Raises LocalError.
        """
        lineage = _lineage(folder)
        model_id = str(lineage["model_id"])
        name = name or _name_of(model_id)
        run = self._start_run(experiment_id(self, EXPERIMENT), model_id, lineage["lineage"])
        source = f"{run['artifact_uri']}/{FOLDER}"
        for file in sorted(path for path in folder.iterdir() if path.is_file()):
            self._upload(f"{run['artifact_uri']}/{FOLDER}", file)
        body = {"run_id": run["run_id"], "status": "FINISHED"}
        self.call("POST", "mlflow/runs/update", body)
        tags = [{"key": "tunery.model_id", "value": model_id}]
        self.call("POST", "mlflow/registered-models/create", {"name": name}, permitted=EXISTS)
        created = {"name": name, "source": source, "run_id": run["run_id"], "tags": tags}
        version = self.call("POST", "mlflow/model-versions/create", created)["model_version"]
        if alias is not None:
            named = {"name": name, "alias": alias, "version": version["version"]}
            self.call("POST", "mlflow/registered-models/alias", named)
        return {"name": name, "version": version["version"], "source": source, "alias": alias}

    def _start_run(self, experiment: str, model_id: str, lineage: dict[str, Any]) -> dict[str, Any]:
        tags = [{"key": "mlflow.runName", "value": model_id}]
        tags.append({"key": "tunery.verdict", "value": str(lineage.get("verdict"))})
        body = {"experiment_id": experiment, "run_name": model_id, "tags": tags}
        run: dict[str, Any] = self.call("POST", "mlflow/runs/create", body)["run"]["info"]
        known = [(key, lineage[key]) for key in PARAMETERS if lineage.get(key) not in (None, "")]
        parameters = [{"key": key, "value": str(value)} for key, value in known]
        logged = {"run_id": run["run_id"], "params": parameters}
        self.call("POST", "mlflow/runs/log-batch", logged)
        return run

    def _upload(self, folder_uri: str, file: Path) -> None:
        scheme, _, path = folder_uri.partition(":")
        if f"{scheme}:" != PROXIED:
            text = f"{self.url} keeps artifacts at {folder_uri}, which only its clients can reach"
            raise LocalError(text, "start it with --serve-artifacts")
        where = quote(f"{path.lstrip('/')}/{file.name}")
        size = str(file.stat().st_size)
        self._send(
            "PUT",
            f"mlflow-artifacts/artifacts/{where}",
            content=_chunks(file),
            headers={"content-length": size, "content-type": "application/octet-stream"},
            timeout=UPLOAD_S_MAX,
        )

    def call(
        self, method: str, path: str, body: Any = None, permitted: str | None = None
    ) -> dict[str, Any]:
        """The answer; empty for an error with the code that is permitted. Raises LocalError."""
        return self._send(method, path, permitted, json=body)

    def _send(
        self, method: str, path: str, permitted: str | None = None, **arguments: Any
    ) -> dict[str, Any]:
        try:
            answer = self._http.request(method, path, **arguments)
            answered = answer.json() if answer.content.strip() else {}
        except httpx.HTTPError as error:
            text = f"{self.url} does not answer: {error or type(error).__name__}"
            raise LocalError(text, self._fix) from error
        except ValueError as error:
            text = f"{self.url} answers {answer.status_code} and no JSON"
            raise LocalError(text, self._fix) from error
        if answer.is_success:
            return dict(answered)
        if permitted is not None and answered.get("error_code") == permitted:
            return {}
        said = answered.get("message") or answered.get("error_code") or answer.status_code
        raise LocalError(f"MLflow refused: {said}", f"see the log of {self.url}")


def _chunks(file: Path) -> Iterator[bytes]:
    with file.open("rb") as stream:
        while chunk := stream.read(CHUNK_BYTES):
            yield chunk


def _lineage(folder: Path) -> dict[str, Any]:
    try:
        lineage = json.loads((folder / LINEAGE).read_bytes())
        if isinstance(lineage["lineage"], dict) and lineage["model_id"]:
            return dict(lineage)
    except (OSError, ValueError, KeyError, TypeError):
        pass
    text = f"{folder} has no {LINEAGE}, so it is no downloaded version"
    raise LocalError(text, "download one with `tunery model download MODEL FOLDER`")


def _name_of(model_id: str) -> str:
    """A name of a model in MLflow, which takes neither slashes nor colons."""
    _, base, _, suffix, _ = (model_id.split(":") + [""] * 5)[:5]
    return "-".join(part for part in (base, suffix) if part).replace("/", "-")
