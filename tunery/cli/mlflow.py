"""`tunery mlflow`: the MLflow server that jobs with such an integration are written to."""

import os
from typing import Any

import click

from tunery.cli import _api, _options
from tunery.local.paths import DataDir

EPILOG = """\
\b
Examples:
  tunery mlflow set https://mlflow.example.com
  tunery mlflow show
  tunery mlflow remove
"""


@click.group("mlflow", cls=_options.ExampleGroup, epilog=EPILOG)
def command() -> None:
    """Name the MLflow server that jobs are written to.

    Jobs are those whose integrations have the type mlflow.
    """


@command.command("set")
@click.argument("url")
@_options.data_dir
@_options.as_json
def set_server(url: str, folders: DataDir, as_json: bool) -> None:
    """Name the server. Credentials are taken from where MLflow's own client takes them:
    MLFLOW_TRACKING_TOKEN, or MLFLOW_TRACKING_USERNAME and _PASSWORD; they are kept encrypted.
    """
    with _api.connect(folders) as api:
        server = api.write("PUT", "integrations", "mlflow", json={"url": url, **_credentials()})
    _api.show_one(server, as_json, _fields(server))


@command.command("show")
@_options.data_dir
@_options.as_json
def show(folders: DataDir, as_json: bool) -> None:
    """Show the server, and of which kind its credentials are."""
    with _api.connect(folders) as api:
        server = api.get("integrations", "mlflow")
    _api.show_one(server, as_json, _fields(server))


@command.command("remove")
@_options.data_dir
@_options.as_json
def remove(folders: DataDir, as_json: bool) -> None:
    """Forget the server. Jobs that ask for MLflow are refused from now on."""
    with _api.connect(folders) as api:
        api.write("DELETE", "integrations", "mlflow")
    _api.show_removed("mlflow", "removed", as_json)


def _credentials() -> dict[str, str]:
    if token := os.environ.get("MLFLOW_TRACKING_TOKEN"):
        return {"token": token}
    if user := os.environ.get("MLFLOW_TRACKING_USERNAME"):
        password = os.environ.get("MLFLOW_TRACKING_PASSWORD")
        return {"username": user, **({"password": password} if password else {})}
    return {}


def _fields(server: Any) -> list[tuple[str, Any]]:
    return [
        ("url", server["url"]),
        ("credentials", server["authorization"] or "none"),
        ("set", _api.moment(server["set_at"])),
        ("warning", server["warning"]),
    ]
