"""`tunery mlflow`: the MLflow server that jobs with such an integration are written to."""

import os
from typing import TYPE_CHECKING, Any

import click

from tunery.cli import _api, _options

if TYPE_CHECKING:
    from tunery.client import Api

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


def _fields(server: Any) -> list[tuple[str, Any]]:
    return [
        ("url", server["url"]),
        ("credentials", server["authorization"] or "none"),
        ("set", _api.moment(server["set_at"])),
        ("warning", server["warning"]),
    ]


@command.command("set")
@click.argument("url")
@_api.shown(_fields)
def set_server(api: "Api", url: str) -> Any:
    """Name the server. Credentials are taken from where MLflow's own client takes them:
    MLFLOW_TRACKING_TOKEN, or MLFLOW_TRACKING_USERNAME and _PASSWORD; they are kept encrypted.
    """
    return api.write("PUT", "integrations", "mlflow", json={"url": url, **_credentials()})


@command.command("show")
@_api.shown(_fields)
def show(api: "Api") -> Any:
    """Show the server, and of which kind its credentials are."""
    return api.get("integrations", "mlflow")


@command.command("remove")
@_api.removed("removed")
def remove(api: "Api") -> str:
    """Forget the server. Jobs that ask for MLflow are refused from now on."""
    api.write("DELETE", "integrations", "mlflow")
    return "mlflow"


def _credentials() -> dict[str, str]:
    if token := os.environ.get("MLFLOW_TRACKING_TOKEN"):
        return {"token": token}
    if user := os.environ.get("MLFLOW_TRACKING_USERNAME"):
        password = os.environ.get("MLFLOW_TRACKING_PASSWORD")
        return {"username": user, **({"password": password} if password else {})}
    return {}
