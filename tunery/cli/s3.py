"""`tunery s3`: who may do what in object storage, and the same for an S3 of one's own."""

import asyncio
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tunery.cli import _options
from tunery.cli._rights import print_rights
from tunery.cli.upgrade import secret_option
from tunery.local.paths import DataDir
from tunery.local.settings import BUCKET

if TYPE_CHECKING:
    from tunery.cli._unnamed import Unnamed

EPILOG = """\
\b
Examples:
  tunery s3 grants
  tunery s3 grants --json
  tunery s3 policy gateway
  tunery s3 policy trainer --bucket team-models
  tunery s3 policy gateway --json
  tunery s3 unnamed                    what no record names, older than 30 days; nothing is changed
  tunery s3 unnamed --older-than 7 --json
  tunery s3 unnamed --erase
"""


@click.group("s3", cls=_options.ExampleGroup, epilog=EPILOG)
def command() -> None:
    """Show who may do what in object storage, print policies for an S3 of your own, and tidy it.

    The embedded S3 is prepared by `tunery up`.
    """


@command.command("grants")
@_options.as_json
def grants(as_json: bool) -> None:
    """List what each service may do with objects, by the beginning of their keys.

    `trainer` is each node, `*` any tenant.
    """
    from schemas.topics import SERVICES
    from tunery.platform.object_policies import object_grants

    rows = [
        (service, verb, prefix)
        for service in SERVICES
        for grant in object_grants(service)
        for verb in grant.verbs
        for prefix in grant.prefixes
    ]
    columns = ("service", "operation", "prefix")
    print_rights({column: column for column in columns}, rows, as_json)


@command.command("policy")
@click.argument("service")
@click.option("--bucket", default=BUCKET, show_default=True, help="Name of the bucket.")
@_options.as_json
def policy(service: str, bucket: str, as_json: bool) -> None:
    """Print the policy for the account of SERVICE, in the form of Amazon's IAM.

    That of nodes is `trainer`. Accounts and their keys are yours to make.
    """
    from schemas.topics import SERVICES
    from tunery.platform.object_policies import identity_policy

    if service not in SERVICES:
        raise click.UsageError(f"there is no service {service}: choose {', '.join(SERVICES)}")
    click.echo(json.dumps(identity_policy(bucket, service), indent=None if as_json else 2))


@command.command("unnamed")
@click.option(
    "--older-than",
    "days",
    type=click.IntRange(min=1),
    default=30,
    show_default=True,
    help="Leave objects that were stored in the last N days.",
)
@click.option("--erase", is_flag=True, help="Erase them. Without it they are only listed.")
@secret_option
@_options.data_dir
@_options.as_json
def unnamed(
    days: int, erase: bool, secret_file: Path | None, folders: DataDir, as_json: bool
) -> None:
    """List objects of tenants that no record of the log names, or erase them, for operators.

    They are left by uploads and tries whose process was killed before it could report them. With
    --erase the decision is on the log, signed; the service ingest then erases them, except what was
    stored again or registered since. Services may run meanwhile.
    """
    inventory, commands = asyncio.run(_unnamed(days, erase, secret_file, folders))
    if as_json:
        import msgspec

        click.echo(msgspec.json.encode(msgspec.to_builtins(inventory) | {"commands": commands}))
        return
    for kind, objects in inventory.kinds.items():
        click.echo(f"{kind}: {len(objects)} objects, {sum(each.bytes for each in objects)} bytes")
    if inventory.foreign:
        click.echo(
            f"{len(inventory.foreign)} objects of tenants that this log does not know are left, "
            f"such as {inventory.foreign[0].key}"
        )
    if not inventory.objects:
        click.echo(f"no object of more than {days} days is unnamed")
    elif erase:
        click.echo(f"{len(inventory.objects)} objects are to be erased, by {commands} commands")
    else:
        click.echo(f"{len(inventory.objects)} objects; `tunery s3 unnamed --erase` erases them")


async def _unnamed(
    days: int, erase: bool, secret_file: Path | None, folders: DataDir
) -> "tuple[Unnamed, int]":
    """Make an inventory, and send what follows from it. Raises LocalError."""
    from schemas.topics import STREAMS
    from schemas.units import DAY_MS
    from tunery.cli._unnamed import erase_unnamed, find_unnamed
    from tunery.cli.backup import surroundings
    from tunery.cli.journal import connection, refusing
    from tunery.runtime.bus.sender import Sender
    from tunery.runtime.clock import SystemClock

    before = SystemClock().now_ms() - days * DAY_MS
    async with (
        connection.open_log(folders) as log,
        surroundings.open_objects(folders, os.environ) as list_objects,
    ):
        inventory = await find_unnamed(log, list_objects, before)
        if not erase:
            return inventory, 0
        keys = refusing.operator_keys(folders, secret_file, os.environ)
        return inventory, await erase_unnamed(Sender(log, STREAMS, keys=keys), inventory)
