"""`tunery kafka`: who may do what on Kafka, and the same for a Kafka of one's own."""

import asyncio
import json
import os
from pathlib import Path

import click

from tunery.cli import _options
from tunery.cli._rights import print_rights, rename
from tunery.local.errors import LocalError
from tunery.local.paths import DataDir

EPILOG = """\
\b
Examples:
  tunery kafka grants
  tunery kafka grants --json
  tunery kafka prepare
  tunery kafka prepare --node gpu-07 --node gpu-08
  tunery kafka prepare --node gpu-07 --node-bytes 4000000
  tunery kafka quotas
  tunery kafka prepare --principal gateway=CN=gateway.example.com
  tunery kafka keys gateway
  tunery kafka keys node.gpu-07 --secret command-secret.txt
  tunery kafka files environment --secret command-secret.txt --node gpu-07
"""


def _node_ids(_: click.Context, __: click.Parameter, names: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse what no node can enrol as: it would be taken for a service, or for an operator."""
    from schemas.streams import KEY_NUMBER
    from schemas.topics import RESERVED_NODE_IDS

    for name in names:
        if name.partition(KEY_NUMBER)[0].casefold() in RESERVED_NODE_IDS:
            raise click.BadParameter(
                f"{name} is the name of a service or an operator; take another"
            )
    return names


signed_since_option = click.option(
    "--signed-since",
    type=click.IntRange(min=0),
    default=0,
    help="With --secret: commands of before this time (ms since 1970) are not checked.",
)


@click.group("kafka", cls=_options.ExampleGroup, epilog=EPILOG)
def command() -> None:
    """Show who may do what on Kafka, and prepare a Kafka of your own for it.

    The embedded Kafka is prepared by `tunery up`.
    """


@command.command("grants")
@_options.as_json
def grants(as_json: bool) -> None:
    """List what each service may do on Kafka, as the catalogue of topics says."""
    from schemas.topics import SERVICES
    from tunery.platform.bus.grants import grants_of

    rows = [
        (service, grant.operation, grant.resource, f"{grant.name}{'*' if grant.is_prefix else ''}")
        for service in SERVICES
        for grant in sorted(grants_of(service), key=lambda grant: (grant.resource, grant.name))
    ]
    columns = ("service", "operation", "resource", "name")
    print_rights({column: column for column in columns}, rows, as_json)


@command.command("prepare")
@click.option(
    "--node",
    "nodes",
    multiple=True,
    callback=_node_ids,
    help="Id of a node; its principal is `node.ID`.",
)
@click.option(
    "--principal",
    "renamed",
    multiple=True,
    metavar="SERVICE=NAME",
    help="How Kafka names a service, or `node.ID`, where not by its own name.",
)
@click.option(
    "--node-bytes",
    type=click.IntRange(min=10_000),
    help="Bytes a second that each of these nodes may write to a broker; default: 2 MiB, or the "
    "quota that the node has.",
)
@_options.data_dir
@_options.as_json
def prepare(
    folders: DataDir,
    nodes: tuple[str, ...],
    renamed: tuple[str, ...],
    node_bytes: int | None,
    as_json: bool,
) -> None:
    """Check the brokers' settings, bring topics up to date, and give each service its rights.

    Nodes get a quota, too. It logs in as TUNERY_KAFKA_… says, as somebody who may create topics
    and change rights. Passwords and certificates are yours to make. Other principals are left
    alone.
    """
    from schemas.streams import NODE, NODE_PREFIX
    from schemas.topics import SERVICES, TOPICS
    from tunery.local.settings import log_settings
    from tunery.platform.bus.preparation import Unsuitable, prepare_kafka
    from tunery.platform.connections import patient_kafka_settings
    from tunery.runtime.bus.abstract import BusError

    principals = [service for service in SERVICES if service != NODE]
    principals += [f"{NODE_PREFIX}{node}" for node in nodes]
    own = {principal: principal for principal in principals}
    names = rename("--principal SERVICE=NAME", renamed, own)
    operator = patient_kafka_settings(log_settings(folders, os.environ))
    try:
        notes = asyncio.run(prepare_kafka(operator, names, node_bytes))
    except BusError as error:
        raise LocalError(
            f"Kafka was not prepared: {error}",
            "log in as an operator: see docs/how-to/secure-kafka.md",
        ) from error
    except Unsuitable as error:
        raise LocalError(
            f"Tunery cannot run on this Kafka:\n{error}", "change that, and run it again"
        ) from error
    done = {
        "topics": [topic.name for topic in TOPICS],
        "principals": sorted(names.values()),
        "notes": notes,
    }
    if as_json:
        click.echo(json.dumps(done))
    else:
        click.echo(f"{len(TOPICS)} topics exist, and {len(names)} principals have their rights")
        for note in notes:
            click.echo(f"note: {note}")


@command.command("quotas")
@_options.data_dir
@_options.as_json
def quotas(folders: DataDir, as_json: bool) -> None:
    """List how many bytes a second each principal may write to a broker.

    Principals that are not listed have no quota of their own.
    """
    from tunery.local.settings import log_settings
    from tunery.platform.bus.kafka_quotas import producer_limits
    from tunery.platform.connections import patient_kafka_settings
    from tunery.runtime.bus.abstract import BusError

    operator = patient_kafka_settings(log_settings(folders, os.environ))
    try:
        limits = asyncio.run(producer_limits(operator.login, operator.bootstrap))
    except BusError as error:
        raise LocalError(
            f"Kafka did not list its quotas: {error}",
            "log in as an operator: see docs/how-to/secure-kafka.md",
        ) from error
    if as_json:
        click.echo(json.dumps(limits))
    for principal, limit in sorted(limits.items()) if not as_json else ():
        click.echo(f"{principal:<24}{limit:>14,.0f} bytes/s")


@command.command("keys")
@click.argument("principal")
@click.option(
    "--secret",
    "file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File with a secret of 32 characters or more; default: that of the data directory.",
)
@signed_since_option
@_options.data_dir
@_options.as_json
def keys(
    folders: DataDir, principal: str, file: Path | None, signed_since: int, as_json: bool
) -> None:
    """Print the keys by which PRINCIPAL proves that it sends a command.

    PRINCIPAL is a service, or `node.` and the id of a node; `node.gpu-07#2` is the second key of a
    node, for one whose first was withdrawn. The output belongs into its environment alone.
    """
    from tunery.local.secrets import load
    from tunery.platform.bus.sender_keys import keys_of
    from tunery.runtime.bus.signing import write_keys

    try:
        if file is None:
            printed = load(folders.secrets).sender_keys(principal)
        else:
            printed = keys_of(read_secret(file), principal, signed_since)
    except FileNotFoundError as error:
        raise LocalError(
            f"there is no stack in {folders.root}", "name a secret of your own with --secret FILE"
        ) from error
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    written = write_keys(printed)
    if as_json:
        click.echo(json.dumps({"TUNERY_COMMAND_KEYS": written}))
    else:
        click.echo(f"TUNERY_COMMAND_KEYS='{written}'")


@command.command("files")
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--secret",
    "file",
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File with a secret of 32 characters or more.",
)
@click.option(
    "--node",
    "nodes",
    multiple=True,
    callback=_node_ids,
    help="Id of a node, with `#2` behind it for its second key; its file is `node.ID.env`.",
)
@signed_since_option
@_options.as_json
def files(
    folder: Path, file: Path, nodes: tuple[str, ...], signed_since: int, as_json: bool
) -> None:
    """Write a file of variables for each service and named node into FOLDER.

    It has the keys, the name at Kafka and the port of health and metrics of one process, as
    systemd, containers and Kubernetes read it. Add the password to it; it stays as it is then.
    """
    from schemas.streams import NODE_PREFIX, node_of
    from tunery.local.stack import AGENT, KNOWN, METRICS_PORT, METRICS_PORT_FIRST, NODE_ID
    from tunery.platform.bus.sender_keys import keys_of
    from tunery.runtime.bus.signing import write_keys

    secret, written = read_secret(file), []
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    services = [name for name in KNOWN if name != AGENT]
    for sender in (*services, *(f"{NODE_PREFIX}{node}" for node in nodes)):
        node = node_of(sender)
        service, principal = (sender, sender) if node is None else (AGENT, f"{NODE_PREFIX}{node}")
        try:
            keys = write_keys(keys_of(secret, sender, signed_since))
        except ValueError as error:
            raise click.UsageError(str(error)) from error
        variables = {
            "TUNERY_COMMAND_KEYS": keys,
            "TUNERY_KAFKA_USERNAME": principal,
            METRICS_PORT: str(METRICS_PORT_FIRST + KNOWN.index(service)),
            **({NODE_ID: node} if node else {}),
        }
        path = folder / f"{principal}.env"
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            continue
        with os.fdopen(handle, "w", encoding="ascii") as target:
            target.writelines(f"{name}={value}\n" for name, value in variables.items())
        written.append(str(path))
    click.echo(json.dumps(written) if as_json else "\n".join(written))


def read_secret(file: Path) -> bytes:
    """The secret that keys of commands follow from. Raises LocalError for one that is too short."""
    from tunery.runtime.bus.signing import SECRET_BYTES_MIN

    secret = file.read_bytes().strip()
    if len(secret) < SECRET_BYTES_MIN:
        raise LocalError(
            f"{file} has fewer than {SECRET_BYTES_MIN} characters",
            f"write a random secret: openssl rand -hex 32 > {file}",
        )
    return secret
