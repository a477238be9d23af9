"""`tunery tenant`: for operators."""

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
@click.option("--name", help="As people know it. [its id]")
@click.option(
    "--plan",
    type=click.Choice(["premium", "standard", "free"]),
    default="standard",
    show_default=True,
)
@click.option("--soft-hours", type=click.IntRange(0), help="GPU-hours a month; above is overage.")
@click.option("--hard-hours", type=click.IntRange(0), help="GPU-hours a month that end admission.")
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
        raise click.UsageError("give --soft-hours, --hard-hours and --concurrency together")
    with _api.connect(folders) as api:
        made = api.create_tenant(body)
    limits = made["limits"]
    told = [
        ("tenant", made["id"]),
        ("name", made["name"]),
        ("plan", made["plan"]),
        ("soft limit", _api.hours(limits["soft_gpu_ms"])),
        ("hard limit", _api.hours(limits["hard_gpu_ms"])),
        ("at once", limits["concurrency"]),
        ("next", f"tunery key create {made['id']}"),
    ]
    _api.show_one(made, as_json, told)


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
            lambda one: (
                one["id"],
                one["name"],
                one["plan"],
                _api.hours(one["limits"]["hard_gpu_ms"]),
                one["limits"]["concurrency"],
                _api.moment(one["created_at"]),
            ),
        )
