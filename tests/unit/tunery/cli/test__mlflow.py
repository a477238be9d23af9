"""Registering in MLflow, where the server or the folder is not as expected. A real server is asked
by `make test-clients`.
"""

import json
from pathlib import Path

import httpx
import pytest

from tunery.cli._mlflow import MlflowServer
from tunery.local.errors import LocalError


def downloaded(folder: Path, model_id: str = "ft:org/base:acme:poems:1") -> Path:
    (folder / "lineage.json").write_text(json.dumps({"model_id": model_id, "lineage": {}}))
    return folder


def answering(monkeypatch: pytest.MonkeyPatch, artifact_uri: str) -> list[httpx.Request]:
    """A server that knows no experiment, and keeps artifacts there."""
    asked: list[httpx.Request] = []
    answers = {
        "get-by-name": httpx.Response(404, json={"error_code": "RESOURCE_DOES_NOT_EXIST"}),
        "experiments/create": httpx.Response(200, json={"experiment_id": "1"}),
        "runs/create": httpx.Response(
            200, json={"run": {"info": {"run_id": "r", "artifact_uri": artifact_uri}}}
        ),
        "registered-models/create": httpx.Response(
            400, json={"error_code": "RESOURCE_ALREADY_EXISTS"}
        ),
        "model-versions/create": httpx.Response(200, json={"model_version": {"version": "7"}}),
    }

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        known = (answers[end] for end in answers if request.url.path.endswith(end))
        return next(known, httpx.Response(200, content=b""))

    client = httpx.Client

    def connected(**options: object) -> httpx.Client:
        return client(**{**options, "transport": httpx.MockTransport(answer)})  # type: ignore[arg-type]  # as given

    monkeypatch.setattr("tunery.cli._mlflow.httpx.Client", connected)
    return asked


def test_a_version_gets_a_name_that_mlflow_takes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked = answering(monkeypatch, "mlflow-artifacts:/1/r/artifacts")
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "secret")
    with MlflowServer("http://server/") as server:
        known = server.register(downloaded(tmp_path), None, "champion")
    assert (known["name"], known["version"]) == ("org-base-poems", "7")
    assert asked[-1].url.path.endswith("/registered-models/alias")
    assert {request.headers["authorization"] for request in asked} == {"Bearer secret"}
    (sent,) = [request for request in asked if request.method == "PUT"]
    assert sent.url.path.endswith("/artifacts/1/r/artifacts/model/lineage.json")


def test_artifacts_that_the_server_does_not_take_are_no_success(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    answering(monkeypatch, "/var/lib/mlruns/1/r/artifacts")
    with MlflowServer("http://server") as server, pytest.raises(LocalError) as refused:
        server.register(downloaded(tmp_path), None, None)
    assert "serve-artifacts" in str(refused.value)


@pytest.mark.parametrize(
    "content", [None, b"", b"[]", b"{}", b'{"model_id": "ft:a", "lineage": 1}']
)
def test_a_folder_that_is_no_version_is_named(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "lineage.json").write_bytes(content)
    with MlflowServer("http://server") as server, pytest.raises(LocalError) as refused:
        server.register(tmp_path, None, None)
    assert str(tmp_path) in str(refused.value)


def test_a_server_that_is_not_there_is_named(tmp_path: Path) -> None:
    with MlflowServer("http://127.0.0.1:9") as server, pytest.raises(LocalError) as refused:
        server.register(downloaded(tmp_path), None, None)
    assert "127.0.0.1:9 does not answer" in str(refused.value)
