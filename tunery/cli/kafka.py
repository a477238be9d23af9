"""`tunery kafka`: who may do what on Kafka, and the same for a Kafka of one's own."""

import asyncio
import json
import os

import click

from tunery.cli import _options
from tunery.local.errors import LocalError
from tunery.local.paths import DataDir

EPILOG = """\
\b
Examples:
  tunery kafka grants
  tunery kafka grants --json
  tunery kafka prepare
  tunery kafka prepare --node gpu-07 --node gpu-08
  tunery kafka prepare --principal gateway=CN=gateway.example.com
"""


@click.group("kafka", cls=_options.ExampleGroup, epilog=EPILOG)
def command() -> None:
    """Show who may do what on Kafka, and prepare a Kafka of your own for it.

    The embedded Kafka is prepared by `tunery up`.
    """


@command.command("grants")
@_options.as_json
def grants(as_json: bool) -> None:
    """List what each service may do on Kafka, as the catalogue of topics says."""
    from rich.console import Console

    from schemas.topics import SERVICES
    from tunery.cli._tables import table_lines
    from tunery.runtime.bus.grants import grants_of

    rows = [
        (service, grant.operation, grant.resource, f"{grant.name}{'*' if grant.is_prefix else ''}")
        for service in SERVICES
        for grant in sorted(grants_of(service), key=lambda grant: (grant.resource, grant.name))
    ]
    columns = ("service", "operation", "resource", "name")
    if as_json:
        click.echo(json.dumps([dict(zip(columns, row, strict=True)) for row in rows]))
        return
    for line in table_lines(columns, rows, None):
        Console().print(line, soft_wrap=True)


@command.command("prepare")
@click.option("--node", "nodes", multiple=True, help="Id of a node; its principal is `node.ID`.")
@click.option(
    "--principal",
    "renamed",
    multiple=True,
    metavar="SERVICE=NAME",
    help="How Kafka names a service, or `node.ID`, where not by its own name.",
)
@_options.data_dir
@_options.as_json
def prepare(
    folders: DataDir, nodes: tuple[str, ...], renamed: tuple[str, ...], as_json: bool
) -> None:
    """Create missing topics, and give each service exactly its rights.

    It logs in as TUNERY_KAFKA_… says, as somebody who may create topics and change rights.
    Passwords and certificates are yours to make. Other principals are left alone.
    """
    from schemas.topics import SERVICES, TOPICS
    from tunery.local.settings import log_settings
    from tunery.runtime.bus.abstract import BusError
    from tunery.runtime.bus.grants import NODE, NODE_PREFIX
    from tunery.runtime.bus.preparation import prepare_kafka
    from tunery.runtime.connections import kafka_settings

    principals = [service for service in SERVICES if service != NODE]
    principals += [f"{NODE_PREFIX}{node}" for node in nodes]
    names = {principal: principal for principal in principals}
    for pair in renamed:
        principal, _, name = pair.partition("=")
        if principal not in names or not name:
            raise click.UsageError(
                f"--principal {pair}: use SERVICE=NAME, with one of {', '.join(principals)}"
            )
        names[principal] = name
    try:
        asyncio.run(prepare_kafka(kafka_settings(log_settings(folders, os.environ)), names))
    except BusError as error:
        raise LocalError(
            f"Kafka was not prepared: {error}",
            "log in as an operator: see docs/how-to/secure-kafka.md",
        ) from error
    done = {"topics": [topic.name for topic in TOPICS], "principals": sorted(names.values())}
    if as_json:
        click.echo(json.dumps(done))
    else:
        click.echo(f"{len(TOPICS)} topics exist, and {len(names)} principals have their rights")
