"""`tunery webhook`: who is told when a job ends."""

from typing import Final

import click

from tunery.cli import _api, _options
from tunery.local.paths import DataDir

EVENT_TYPES: Final = (
    "fine_tuning.job.succeeded",
    "fine_tuning.job.failed",
    "fine_tuning.job.cancelled",
)
EPILOG = """\
\b
Examples:
  tunery webhook create https://ci.example.com/hooks/tunery
  tunery webhook create https://example.com/h --event fine_tuning.job.failed
  tunery webhook list
  tunery webhook deliveries we_5d…
  tunery webhook delete we_5d…
"""


@click.group("webhook", cls=_options.Noun, epilog=EPILOG)
def command() -> None:
    """Create webhook endpoints and see what was delivered (Standard Webhooks)."""


@command.command("create")
@click.argument("url")
@click.option("--name", default="", help="To tell endpoints apart.")
@click.option(
    "--event",
    "events",
    multiple=True,
    type=click.Choice(EVENT_TYPES),
    help="May be repeated. [all]",
)
@_options.data_dir
@_options.as_json
def create(url: str, name: str, events: tuple[str, ...], folders: DataDir, as_json: bool) -> None:
    """Create an endpoint. Its signing secret is shown this once."""
    body = {"url": url, "name": name, "event_types": list(events or EVENT_TYPES)}
    with _api.connect(folders) as api:
        made = api.create_endpoint(body)
    told = [
        ("endpoint", made["id"]),
        ("url", made["url"]),
        ("events", ", ".join(made["event_types"])),
        ("secret", made["signing_secret"]),
    ]
    _api.show_one(made, as_json, told)


@command.command("list")
@_options.data_dir
@_options.as_json
def list_endpoints(folders: DataDir, as_json: bool) -> None:
    """List endpoints."""
    with _api.connect(folders) as api:
        _api.show(
            api.endpoints(),
            as_json,
            ("endpoint", "name", "url", "events", "created"),
            lambda one: (
                one["id"],
                one["name"],
                one["url"],
                ", ".join(one["event_types"]),
                _api.moment(one["created_at"]),
            ),
        )


@command.command("delete")
@click.argument("endpoint_id")
@_options.data_dir
@_options.as_json
def delete(endpoint_id: str, folders: DataDir, as_json: bool) -> None:
    """Delete an endpoint; deliveries under way still end."""
    with _api.connect(folders) as api:
        api.delete_endpoint(endpoint_id)
    _api.show_gone(endpoint_id, "deleted", as_json)


@command.command("deliveries")
@click.argument("endpoint_id")
@_options.data_dir
@_options.as_json
def deliveries(endpoint_id: str, folders: DataDir, as_json: bool) -> None:
    """Show what was sent to an endpoint and what came of it, newest first."""
    with _api.connect(folders) as api:
        _api.show(
            api.deliveries(endpoint_id),
            as_json,
            ("delivery", "event", "about", "outcome", "attempts", "status", "when"),
            lambda one: (
                one["id"],
                one["event"]["type"],
                one["event"]["data"]["id"],
                one["outcome"],
                one["attempts"],
                one["status_code"],
                _api.moment(one["created_at"]),
            ),
        )
