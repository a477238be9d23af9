"""`tunery key`: API keys of tenants."""

import time

import click

from tunery.cli import _api, _options
from tunery.local.paths import DataDir

DAY_S = 86_400
EPILOG = """\
\b
Examples:
  tunery key create acme --name ci
  tunery key create acme --scope read --days 30
  tunery key list acme
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
    type=click.Choice(["read", "write", "admin"]),
    help="May be repeated. [read and write]",
)
@click.option("--days", type=click.IntRange(1), help="It expires after this many days. [never]")
@_options.data_dir
@_options.as_json
def create(
    tenant: str,
    name: str,
    scopes: tuple[str, ...],
    days: int | None,
    folders: DataDir,
    as_json: bool,
) -> None:
    """Create a key. It is shown this once: only its SHA-256 is kept."""
    body: dict[str, object] = {"name": name, "scopes": list(scopes) or ["read", "write"]}
    if days is not None:
        body["expires_at"] = int(time.time()) + days * DAY_S
    with _api.connect(folders) as api:
        made = api.create_key(tenant, body)
    told = [
        ("key", made["key"]),
        ("id", made["id"]),
        ("scopes", ", ".join(made["scopes"])),
        ("expires", _api.moment(made["expires_at"])),
    ]
    _api.show_one(made, as_json, told)


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
