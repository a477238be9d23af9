"""`tunery key`: API keys of tenants."""

import time
from typing import TYPE_CHECKING

import click

from tunery.cli import _api, _options
from tunery.local.paths import DataDir

if TYPE_CHECKING:
    from tunery.client.shapes import Key

DAY_S = 86_400
MICRO = 1_000_000
EPILOG = """\
\b
Examples:
  tunery key create acme --name ci
  tunery key create acme --scope read --days 30
  tunery key create acme --scope files.write --scope jobs.write
  tunery key create acme --model smollm2-135m-instruct --spend-cap 25
  tunery key list acme
  tunery key rotate acme key_8c… --overlap-hours 2
  tunery key revoke acme key_8c…
"""


@click.group("key", cls=_options.Noun, epilog=EPILOG)
def command() -> None:
    """Create, list and revoke a tenant's API keys (admin key)."""


@command.command("create")
@click.argument("tenant")
@click.option("--name", default="", help="To tell keys apart.")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    metavar="SCOPE",
    help="read, write, admin, or of one resource (files, jobs, models, webhooks) as files.read. "
    "May be repeated. [read and write]",
)
@click.option("--days", type=click.IntRange(1), help="It expires after this many days. [never]")
@click.option(
    "--model", "models", multiple=True, help="A base model its jobs may train; repeatable. [all]"
)
@click.option(
    "--spend-cap",
    type=click.FloatRange(0),
    help="What its jobs may cost in a calendar month, in the currency of your prices. [no cap]",
)
@click.option("--per-minute", type=click.IntRange(1), help="Requests a minute. [3000]")
@_options.data_dir
@_options.as_json
def create(
    tenant: str,
    name: str,
    scopes: tuple[str, ...],
    days: int | None,
    models: tuple[str, ...],
    spend_cap: float | None,
    per_minute: int | None,
    folders: DataDir,
    as_json: bool,
) -> None:
    """Create a key. It is shown this once: only its SHA-256 is kept."""
    body: dict[str, object] = {"name": name, "scopes": list(scopes) or ["read", "write"]}
    if days is not None:
        body["expires_at"] = int(time.time()) + days * DAY_S
    if models:
        body["models"] = list(models)
    if spend_cap is not None:
        body["spend_cap_micro"] = round(spend_cap * MICRO)
    if per_minute is not None:
        body["requests_per_minute"] = per_minute
    with _api.connect(folders) as api:
        made = api.create_key(tenant, body)
    _api.show_one(made, as_json, _told(made))


def _told(key: "Key") -> list[tuple[str, object]]:
    cap = key["spend_cap_micro"]
    return [
        ("key", key["key"]),
        ("id", key["id"]),
        ("scopes", ", ".join(key["scopes"])),
        ("models", ", ".join(key["models"] or ())),
        ("spend cap", None if cap is None else f"{cap / MICRO:.2f} a month"),
        ("requests", key["requests_per_minute"] and f"{key['requests_per_minute']} a minute"),
        ("expires", _api.moment(key["expires_at"])),
        ("old secret", key["previous_until"] and f"until {_api.moment(key['previous_until'])}"),
    ]


@command.command("rotate")
@click.argument("tenant")
@click.argument("key_id")
@click.option(
    "--overlap-hours",
    type=click.FloatRange(0, 720),
    default=24.0,
    show_default=True,
    help="How long the old secret stays good; 0 ends it now.",
)
@_options.data_dir
@_options.as_json
def rotate(tenant: str, key_id: str, overlap_hours: float, folders: DataDir, as_json: bool) -> None:
    """Give a key a new secret; id, scopes and caps stay. It is shown this once."""
    with _api.connect(folders) as api:
        turned = api.rotate_key(tenant, key_id, round(overlap_hours * 3_600))
    _api.show_one(turned, as_json, _told(turned))


@command.command("list")
@click.argument("tenant")
@_options.data_dir
@_options.as_json
def list_keys(tenant: str, folders: DataDir, as_json: bool) -> None:
    """List a tenant's keys; the keys themselves are not known to anybody."""
    with _api.connect(folders) as api:
        _api.show(
            api.keys(tenant),
            as_json,
            ("id", "name", "ends in", "scopes", "created", "expires", "revoked"),
            lambda one: (
                one["id"],
                one["name"],
                one["hint"],
                ", ".join(one["scopes"]),
                _api.moment(one["created_at"]),
                _api.moment(one["expires_at"]),
                _api.moment(one["revoked_at"]),
            ),
        )


@command.command("revoke")
@click.argument("tenant")
@click.argument("key_id")
@_options.data_dir
@_options.as_json
def revoke(tenant: str, key_id: str, folders: DataDir, as_json: bool) -> None:
    """Revoke a key at once."""
    with _api.connect(folders) as api:
        api.revoke_key(tenant, key_id)
    _api.show_gone(key_id, "revoked", as_json)
