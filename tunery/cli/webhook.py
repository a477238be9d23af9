"""`tunery webhook`: who is told when a job ends."""

import time
from typing import Any

import click

from schemas.account import EVENT_TYPES, STANDARD_EVENT_TYPES
from tunery.cli import _api, _options
from tunery.local.paths import DataDir

HOUR_S = 3_600
NO_STATUS = {
    "refused": "not sent: webhooks go to public addresses over https only",
    "gave_up": "no answer",
    "pending": "no answer yet",
}
EPILOG = """\
\b
Examples:
  tunery webhook create https://ci.example.com/hooks/tunery
  tunery webhook create https://example.com/h --event fine_tuning.job.failed
  tunery webhook list
  tunery webhook test we_5d…
  tunery webhook change we_5d… --event fine_tuning.job.running
  tunery webhook deliveries we_5d…
  tunery webhook redeliver we_5d… --hours 24
  tunery webhook rotate we_5d… --keep-old
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
    help="May be repeated. [the three ends of a job]",
)
@_options.data_dir
@_options.as_json
def create(url: str, name: str, events: tuple[str, ...], folders: DataDir, as_json: bool) -> None:
    """Create an endpoint. Its signing secret is shown this once."""
    body = {"url": url, "name": name, "event_types": list(events or STANDARD_EVENT_TYPES)}
    with _api.connect(folders) as api:
        made = api.create_endpoint(body)
    _api.show_one(made, as_json, _told(made))


def _told(endpoint: Any) -> list[tuple[str, Any]]:
    return [
        ("endpoint", endpoint["id"]),
        ("url", endpoint["url"]),
        ("events", ", ".join(endpoint["event_types"])),
        ("secret", endpoint.get("signing_secret")),
    ]


@command.command("change")
@click.argument("endpoint_id")
@click.option("--url", help="Where it goes from now on.")
@click.option("--name", help="To tell endpoints apart.")
@click.option(
    "--event", "events", multiple=True, type=click.Choice(EVENT_TYPES), help="May be repeated."
)
@_options.data_dir
@_options.as_json
def change(
    endpoint_id: str,
    url: str | None,
    name: str | None,
    events: tuple[str, ...],
    folders: DataDir,
    as_json: bool,
) -> None:
    """Change an endpoint; what is not given stays as it is."""
    given = {"url": url, "name": name, "event_types": list(events) or None}
    body = {field: value for field, value in given.items() if value is not None}
    if not body:
        raise click.UsageError("nothing to change: give --url, --name or --event")
    with _api.connect(folders) as api:
        changed = api.change_endpoint(endpoint_id, body)
    _api.show_one(changed, as_json, _told(changed))


@command.command("rotate")
@click.argument("endpoint_id")
@click.option("--keep-old", is_flag=True, help="Sign with the old secret as well for 24 hours.")
@_options.data_dir
@_options.as_json
def rotate(endpoint_id: str, keep_old: bool, folders: DataDir, as_json: bool) -> None:
    """Give an endpoint a new signing secret. It is shown this once."""
    with _api.connect(folders) as api:
        turned = api.rotate_secret(endpoint_id, keep_old)
    _api.show_one(turned, as_json, _told(turned))


@command.command("test")
@click.argument("endpoint_id")
@click.option(
    "--event",
    type=click.Choice(EVENT_TYPES),
    default=STANDARD_EVENT_TYPES[0],
    show_default=True,
)
@_options.data_dir
@_options.as_json
def test(endpoint_id: str, event: str, folders: DataDir, as_json: bool) -> None:
    """Send one signed event about nothing; exits 1 unless the receiver took it."""
    with _api.connect(folders) as api:
        came = api.test_endpoint(endpoint_id, event)
    told = [
        ("event", came["event_type"]),
        ("taken", "yes" if came["success"] else "no"),
        ("status", came["status_code"] or NO_STATUS[came["outcome"]]),
    ]
    _api.show_one(came, as_json, told)
    if not came["success"]:
        raise SystemExit(1)


@command.command("redeliver")
@click.argument("endpoint_id")
@click.argument("delivery_ids", nargs=-1)
@click.option("--hours", type=click.FloatRange(0, 8_784), help="All of the last so many hours.")
@click.option("--all", "every", is_flag=True, help="With --hours: those that arrived, too.")
@_options.data_dir
@_options.as_json
def redeliver(
    endpoint_id: str,
    delivery_ids: tuple[str, ...],
    hours: float | None,
    every: bool,
    folders: DataDir,
    as_json: bool,
) -> None:
    """Deliver events once more, by id or by time; at most 100 a call."""
    if bool(delivery_ids) == (hours is not None):
        raise click.UsageError("give the ids of deliveries, or --hours")
    body: dict[str, Any] = {"delivery_ids": list(delivery_ids)}
    if hours is not None:
        body = {"after": int(time.time() - hours * HOUR_S), "only_failed": not every}
    with _api.connect(folders) as api:
        made = api.redeliver(endpoint_id, body)
    _show_deliveries(made["data"], as_json)
    if made["has_more"] and not as_json:
        click.echo("there are more: run it again with fewer hours", err=True)


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
        _show_deliveries(api.deliveries(endpoint_id), as_json)


def _show_deliveries(data: Any, as_json: bool) -> None:
    _api.show(
        data,
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
