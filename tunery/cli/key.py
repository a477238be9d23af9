"""`tunery key`: API keys, your own and (for operators) those of any tenant."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from schemas.account import ADMIN_SCOPE
from schemas.units import MICRO
from tunery.billing.currency import in_units
from tunery.cli import _api, _options

if TYPE_CHECKING:
    from tunery.client import Api
    from tunery.client.shapes import KeyObject

F = TypeVar("F", bound=Callable[..., Any])
DAY_S = 86_400
CURRENT: Final = "current"  # the key in use
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
  tunery key list              your own
  tunery key rotate            the key in use
  tunery key revoke key_8c…    another of yours: needs the scope keys.write
"""


def _names(metavar: str, *, required: bool = False) -> Callable[[F], F]:
    return click.argument("names", nargs=-1, metavar=metavar, required=required)


def _tenant_and_key(names: tuple[str, ...]) -> tuple[str | None, str]:
    """Read [[TENANT] KEY_ID]; without a tenant the caller's own, without an id the key in use.

    Raises UsageError when there are more than two names.
    """
    if len(names) > 2:
        raise click.UsageError("Give a tenant and a key id, or the key id alone.")
    tenant = names[0] if len(names) == 2 else None
    return tenant, names[-1] if names else CURRENT


@click.group("key", cls=_options.ExampleGroup, epilog=EPILOG)
def command() -> None:
    """Manage API keys.

    Without TENANT these are your own keys; with an admin key, also those of any tenant.
    """


@command.command("create")
@click.argument("tenant")
@click.option("--name", default="", help="A label to recognise the key.")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    metavar="SCOPE",
    help="read, write, admin, or of one resource (files, jobs, models, webhooks, keys, budgets) as "
    "files.read. "
    "May be repeated. [read and write]",
)
@click.option(
    "--days", type=click.IntRange(1), help="The key expires after this many days. [never]"
)
@click.option(
    "--model", "models", multiple=True, help="A base model its jobs may train; repeatable. [all]"
)
@click.option(
    "--spend-cap",
    type=_options.Number(0, 1e9),
    help="What its jobs may cost in a calendar month, in the currency of your prices. [no cap]",
)
@click.option("--per-minute", type=click.IntRange(1), help="Requests a minute. [3000]")
@_api.asking
def create(
    api: "Api",
    tenant: str,
    name: str,
    scopes: tuple[str, ...],
    days: int | None,
    models: tuple[str, ...],
    spend_cap: float | None,
    per_minute: int | None,
    as_json: bool,
) -> None:
    """Create a key for TENANT (needs an admin key). It is shown only now; its SHA-256 is kept."""
    body: dict[str, object] = {"name": name, "scopes": list(scopes) or ["read", "write"]}
    if days is not None:
        body["expires_at"] = int(time.time()) + days * DAY_S
    if spend_cap is not None:
        body["spend_cap_micro"] = round(spend_cap * MICRO)
    if per_minute is not None:
        body["requests_per_minute"] = per_minute
    if models:
        body["models"] = _bases(api, models)
    key = api.create_key(tenant, body)
    _api.show_one(key, as_json, _fields(key))
    if ADMIN_SCOPE in key["scopes"]:
        click.echo(
            f"Note: a key with the scope admin acts on every tenant, not on {tenant} alone.",
            err=True,
        )


def _bases(api: "Api", names: tuple[str, ...]) -> list[str]:
    """The ids of base models that have these names. Raises BadParameter for an unknown one."""
    ids = {name: base["id"] for base in api.bases() for name in (base["id"], *base["aliases"])}
    unknown = [name for name in names if name not in ids]
    if unknown:
        known = ", ".join(sorted(ids))
        raise click.BadParameter(
            f"no such base model: {', '.join(unknown)}; there are {known}", param_hint="--model"
        )
    return sorted({ids[name] for name in names})


def _fields(key: "KeyObject") -> list[tuple[str, object]]:
    cap, currency = key["spend_cap_micro"], key["spend_cap_currency"] or ""
    return [
        ("key", key["key"]),
        ("id", key["id"]),
        ("scopes", ", ".join(key["scopes"])),
        ("models", ", ".join(key["models"] or ())),
        ("spend cap", None if cap is None else f"{in_units(cap)} {currency} a month"),
        ("requests", key["requests_per_minute"] and f"{key['requests_per_minute']} a minute"),
        ("expires", _api.moment(key["expires_at"])),
        ("old secret", key["previous_until"] and f"until {_api.moment(key['previous_until'])}"),
    ]


@command.command("rotate")
@_names("[[TENANT] KEY_ID]")
@click.option(
    "--overlap-hours",
    type=_options.Number(0, 720),
    default=24.0,
    show_default=True,
    help="How long the old secret stays valid; 0 ends it now.",
)
@_api.shown(_fields)
def rotate(api: "Api", names: tuple[str, ...], overlap_hours: float) -> Any:
    """Give a key a new secret, which is shown only now. Its id, scopes and caps stay.

    Without a key id, the key in use. A tenant's key rotates only itself.
    """
    tenant, key_id = _tenant_and_key(names)
    return api.rotate_key(key_id, round(overlap_hours * 3_600), tenant)


@command.command("list")
@click.argument("tenant", required=False)
@_api.listed(
    {
        "id": "id",
        "name": "name",
        "last four": "hint",
        "scopes": lambda key: ", ".join(key["scopes"]),
        "models": lambda key: "all" if key["models"] is None else ", ".join(key["models"]),
        "spend cap": lambda key: _api.money(
            key["spend_cap_micro"], key["spend_cap_currency"] or ""
        ),
        "requests/min": "requests_per_minute",
        "created": lambda key: _api.moment(key["created_at"]) if key["created_at"] else "",
        "expires": lambda key: _api.moment(key["expires_at"]),
        "revoked": lambda key: _api.moment(key["revoked_at"]),
        "last used": lambda key: _api.moment(key.get("last_used_at")),
    }
)
def list_keys(api: "Api", tenant: str | None) -> Any:
    """List your keys, or those of TENANT. Secrets are not shown: only their hashes are stored."""
    return api.keys(tenant)


@command.command("revoke")
@_names("[TENANT] KEY_ID", required=True)
@_api.asking
def revoke(api: "Api", names: tuple[str, ...], as_json: bool) -> None:
    """Revoke a key at once.

    To revoke another key of your tenant, yours needs the scope keys.write; for TENANT's, admin.
    """
    tenant, key_id = _tenant_and_key(names)
    revoked = api.revoke_key(key_id, tenant)
    _api.show_removed(revoked["id"], "revoked", as_json)
