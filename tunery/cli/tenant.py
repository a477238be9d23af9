"""`tunery tenant`: creates and lists tenants, for operators."""

import click

from tunery.cli import _api, _options
from tunery.local.paths import DataDir

HOUR_MS = 3_600_000
EPILOG = """\
\b
Examples:
  tunery tenant create acme --name "Acme Ltd" --plan standard
  tunery tenant create lab --plan premium --soft-hours 100 --hard-hours 200 --concurrency 4
  tunery tenant list
"""


@click.group("tenant", cls=_options.Noun, epilog=EPILOG)
def command() -> None:
    """Create tenants and list them (admin key)."""


@command.command("create")
@click.argument("tenant")
@click.option("--name", help="Display name. [its id]")
@click.option(
    "--plan",
    type=click.Choice(["premium", "standard", "free"]),
    default="standard",
    show_default=True,
)
@click.option(
    "--soft-hours", type=click.IntRange(0), help="GPU-hours a month; use above this is overage."
)
@click.option(
    "--hard-hours",
    type=click.IntRange(0),
    help="GPU-hours a month; at this limit no job is accepted.",
)
@click.option("--concurrency", type=click.IntRange(1), help="Jobs running or waiting at once.")
@_options.data_dir
@_options.as_json
def create(
    tenant: str,
    name: str | None,
    plan: str,
    soft_hours: int | None,
    hard_hours: int | None,
    concurrency: int | None,
    folders: DataDir,
    as_json: bool,
) -> None:
    """Create TENANT. Limits come from the plan, or all three from the options."""
    body: dict[str, object] = {"id": tenant, "name": name or tenant, "plan": plan}
    if soft_hours is not None and hard_hours is not None and concurrency is not None:
        body["limits"] = {
            "soft_gpu_ms": soft_hours * HOUR_MS,
            "hard_gpu_ms": hard_hours * HOUR_MS,
            "concurrency": concurrency,
        }
    elif not soft_hours == hard_hours == concurrency:
        raise click.UsageError("Give --soft-hours, --hard-hours and --concurrency together.")
    with _api.connect(folders) as api:
        created = api.create_tenant(body)
    limits = created["limits"]
    fields = [
        ("tenant", created["id"]),
        ("name", created["name"]),
        ("plan", created["plan"]),
        ("soft limit", _api.hours(limits["soft_gpu_ms"])),
        ("hard limit", _api.hours(limits["hard_gpu_ms"])),
        ("at once", limits["concurrency"]),
        ("next", f"tunery key create {created['id']}"),
    ]
    _api.show_one(created, as_json, fields)


@command.command("list")
@_options.data_dir
@_options.as_json
def list_tenants(folders: DataDir, as_json: bool) -> None:
    """List tenants."""
    with _api.connect(folders) as api:
        _api.show(
            api.tenants(),
            as_json,
            ("tenant", "name", "plan", "hard limit", "at once", "created"),
            lambda tenant: (
                tenant["id"],
                tenant["name"],
                tenant["plan"],
                _api.hours(tenant["limits"]["hard_gpu_ms"]),
                tenant["limits"]["concurrency"],
                _api.moment(tenant["created_at"]),
            ),
        )
