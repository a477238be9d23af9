"""`tunery webhook`: endpoints that hear when a job ends, by HTTP or e-mail, and deliveries."""

import time
from typing import TYPE_CHECKING, Any, Final

import click

from schemas.account import EVENT_TYPES, STANDARD_EVENT_TYPES
from tunery.cli import _api, _options

if TYPE_CHECKING:
    from tunery.client import Api

HOUR_S = 3_600
NO_STATUS = {
    "refused": "not sent: webhooks go to public addresses over https only, unless the notifier "
    "has TUNERY_NOTIFIER_ALLOW_PRIVATE=1; e-mail goes where TUNERY_NOTIFIER_SMTP_DOMAINS allows it",
    "gave_up": "no answer",
    "pending": "no answer yet",
}
DELIVERY_COLUMNS: Final[_api.Columns] = {
    "delivery": "id",
    "event": lambda delivery: delivery["event"]["type"],
    "about": lambda delivery: delivery["event"]["data"]["id"],
    "outcome": "outcome",
    "attempts": "attempts",
    "HTTP status": "status_code",
    "when": lambda delivery: _api.moment(delivery["created_at"]),
}
EPILOG = """\
\b
Examples:
  tunery webhook create https://ci.example.com/hooks/tunery
  tunery webhook create https://example.com/h --event fine_tuning.job.failed
  tunery webhook create mailto:ops@example.com
  tunery webhook confirm we_5d… CODE
  tunery webhook list
  tunery webhook test we_5d…
  tunery webhook change we_5d… --event fine_tuning.job.running
  tunery webhook deliveries we_5d…
  tunery webhook redeliver we_5d… --hours 24
  tunery webhook rotate we_5d… --keep-old
  tunery webhook delete we_5d…
"""


@click.group("webhook", cls=_options.ExampleGroup, epilog=EPILOG)
def command() -> None:
    """Manage webhook endpoints and their deliveries.

    Messages follow Standard Webhooks.
    """


def _fields(endpoint: Any) -> list[tuple[str, Any]]:
    return [
        ("endpoint", endpoint["id"]),
        ("url", endpoint["url"]),
        ("events", ", ".join(endpoint["event_types"])),
        ("secret", endpoint.get("signing_secret")),
        ("warning", endpoint.get("warning")),
    ]


@command.command("create")
@click.argument("url")
@click.option("--name", default="", help="A label to recognise the endpoint.")
@click.option(
    "--event",
    "events",
    multiple=True,
    type=click.Choice(EVENT_TYPES),
    help="May be repeated. [the three ends of a job]",
)
@_api.shown(_fields)
def create(api: "Api", url: str, name: str, events: tuple[str, ...]) -> Any:
    """Create an endpoint. Its signing secret is shown only now."""
    body = {"url": url, "name": name, "event_types": list(events or STANDARD_EVENT_TYPES)}
    return api.create_endpoint(body)


@command.command("change")
@click.argument("endpoint_id")
@click.option("--url", help="The new URL.")
@click.option("--name", help="A label to recognise the endpoint.")
@click.option(
    "--event", "events", multiple=True, type=click.Choice(EVENT_TYPES), help="May be repeated."
)
@_api.shown(_fields)
def change(
    api: "Api", endpoint_id: str, url: str | None, name: str | None, events: tuple[str, ...]
) -> Any:
    """Change an endpoint; options that are not given stay as they are."""
    changes = {"url": url, "name": name, "event_types": list(events) or None}
    body = {field: value for field, value in changes.items() if value is not None}
    if not body:
        raise click.UsageError("Nothing to change: give --url, --name or --event.")
    return api.change_endpoint(endpoint_id, body)


@command.command("confirm")
@click.argument("endpoint_id")
@click.argument("code")
@_api.shown(_fields)
def confirm(api: "Api", endpoint_id: str, code: str) -> Any:
    """Confirm an e-mail address with the CODE that was mailed to it."""
    return api.write("POST", "webhook_endpoints", endpoint_id, "confirm", json={"code": code})


@command.command("rotate")
@click.argument("endpoint_id")
@click.option("--keep-old", is_flag=True, help="Sign with the old secret as well for 24 hours.")
@_api.shown(_fields)
def rotate(api: "Api", endpoint_id: str, keep_old: bool) -> Any:
    """Give an endpoint a new signing secret, which is shown only now."""
    return api.rotate_secret(endpoint_id, keep_old)


@command.command("test")
@click.argument("endpoint_id")
@click.option(
    "--event",
    type=click.Choice(EVENT_TYPES),
    default=STANDARD_EVENT_TYPES[0],
    show_default=True,
    help="The type of the test event.",
)
@_api.asking
def test(api: "Api", endpoint_id: str, event: str, as_json: bool) -> None:
    """Send a signed test event; exit code 1 unless the receiver accepts it."""
    test = api.test_endpoint(endpoint_id, event)
    fields = [
        ("event", test["event_type"]),
        ("accepted", "yes" if test["success"] else "no"),
        ("HTTP status", test["status_code"] or NO_STATUS[test["outcome"]]),
    ]
    _api.show_one(test, as_json, fields)
    if not test["success"]:
        raise SystemExit(1)


@command.command("redeliver")
@click.argument("endpoint_id")
@click.argument("delivery_ids", nargs=-1)
@click.option(
    "--hours", type=_options.Number(0, 8_784), help="All deliveries of the last HOURS hours."
)
@click.option("--all", "every", is_flag=True, help="With --hours: also those that arrived.")
@_api.asking
def redeliver(
    api: "Api",
    endpoint_id: str,
    delivery_ids: tuple[str, ...],
    hours: float | None,
    every: bool,
    as_json: bool,
) -> None:
    """Deliver events again, by id or by time; at most 100 per call."""
    if bool(delivery_ids) == (hours is not None):
        raise click.UsageError("Give the ids of deliveries, or --hours.")
    body: dict[str, Any] = {"delivery_ids": list(delivery_ids)}
    if hours is not None:
        body = {"after": int(time.time() - hours * HOUR_S), "only_failed": not every}
    repeated = api.redeliver(endpoint_id, body)
    _api.show(repeated["data"], as_json, DELIVERY_COLUMNS)
    if repeated["has_more"] and not as_json:
        click.echo("There are more deliveries: run the command again with fewer hours.", err=True)


_api.add_list(
    command,
    "List endpoints.",
    lambda api: api.endpoints(),
    {
        "endpoint": "id",
        "name": "name",
        "url": "url",
        "events": lambda endpoint: ", ".join(endpoint["event_types"]),
        "created": lambda endpoint: _api.moment(endpoint["created_at"]),
    },
)


@command.command("delete")
@click.argument("endpoint_id")
@_api.removed("deleted")
def delete(api: "Api", endpoint_id: str) -> str:
    """Delete an endpoint; open deliveries are still completed."""
    api.delete_endpoint(endpoint_id)
    return endpoint_id


@command.command("deliveries")
@click.argument("endpoint_id")
@_api.listed(DELIVERY_COLUMNS)
def deliveries(api: "Api", endpoint_id: str) -> Any:
    """Show the deliveries to an endpoint and their results, newest first."""
    return api.deliveries(endpoint_id)
