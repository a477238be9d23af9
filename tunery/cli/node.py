"""`tunery node`: shows the machines that run jobs, and takes them out of service."""

import asyncio
import os
import re
import secrets
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from schemas.enrolment import MEMBER, USES_MAX
from tunery.cli import _api, _options
from tunery.local.errors import LocalError
from tunery.local.paths import DataDir

if TYPE_CHECKING:
    from tunery.client import Api

# Accounts at Kafka and S3, and settings, that `tunery node enrol` gives a node with its keys.

PASSWORD_BYTES: Final = 24
MECHANISM: Final = "SCRAM-SHA-512"


class NodeAccounts:
    """Accounts of one node: first what it must know of them, then they themselves.

    Where Kafka and S3 are those of `tunery up`, passwords are the ones that an agent beside it
    would have. Raises LocalError.
    """

    def __init__(self, folders: DataDir, node: str) -> None:
        from schemas.streams import NODE_PREFIX
        from tunery.local.settings import log_settings, of_stack, replaced

        self.principal = f"{NODE_PREFIX}{node}"
        self._operator = log_settings(folders, os.environ)
        own = replaced(os.environ)
        has_stack = folders.secrets.is_file() and not {"kafka", "s3"} <= own
        self._stack = of_stack(folders, os.environ) if has_stack else None
        self._password = secrets.token_hex(PASSWORD_BYTES)
        if self._stack is not None and "kafka" not in own:
            self._password = self._stack.keys.kafka_password(self.principal)
        self._has_own_s3 = "s3" in own
        if not self._operator.kafka_security_protocol.startswith("SASL_"):
            raise LocalError(
                "--accounts makes an account with a password, and this Kafka is used without",
                "set TUNERY_KAFKA_SECURITY_PROTOCOL=SASL_SSL and the login of an operator",
            )

    @property
    def variables(self) -> dict[str, str]:
        """Return the environment variables by which the node reaches Kafka and S3."""
        login = {
            "TUNERY_KAFKA_BOOTSTRAP": self._operator.kafka_bootstrap,
            "TUNERY_KAFKA_SECURITY_PROTOCOL": self._operator.kafka_security_protocol,
            "TUNERY_KAFKA_SASL_MECHANISM": MECHANISM,
            "TUNERY_KAFKA_USERNAME": self.principal,
            "TUNERY_KAFKA_PASSWORD": self._password,
        }
        if self._has_own_s3 or self._stack is None:
            return login
        named = ("ENDPOINT", "BUCKET", "ACCESS_KEY", "SECRET_KEY")
        known = self._stack.environment(self.principal)
        return login | {f"TUNERY_S3_{name}": known[f"TUNERY_S3_{name}"] for name in named}

    def create(self) -> None:
        """Make the accounts, or give them their new passwords. Raises LocalError."""
        from tunery.local.ports import read
        from tunery.local.s3_accounts import provide_accounts
        from tunery.platform.bus.preparation import add_account
        from tunery.platform.connections import patient_kafka_settings
        from tunery.runtime.bus.abstract import BusError

        kafka = patient_kafka_settings(self._operator)
        try:
            asyncio.run(add_account(kafka, self.principal, self._password))
        except BusError as error:
            raise LocalError(
                f"the account of {self.principal} was not made: {error}",
                "log in to Kafka as an operator: see docs/how-to/secure-kafka.md",
            ) from error
        if self._stack is not None and not self._has_own_s3:
            folders, bucket = self._stack.folders, self._stack.s3_bucket
            port, folder = read(folders.ports)["s3"], folders.server("s3")
            provide_accounts(folder, port, self._stack.keys, bucket, [self.principal])


def read_variables(file: Path | None) -> dict[str, str]:
    """Variables of a file with lines NAME=value; none without a file. Raises UsageError."""
    if file is None:
        return {}
    lines = [line.strip() for line in file.read_text(encoding="utf-8").splitlines()]
    pairs = [line.partition("=") for line in lines if line and not line.startswith("#")]
    if wrong := [name for name, sign, _ in pairs if not sign]:
        raise click.UsageError(f"--settings {file}: {wrong[0]} is no line NAME=value")
    return {name: value for name, _, value in pairs}


def seal(node: str, variables: dict[str, str]) -> tuple[str, str]:
    """Encrypt a node's settings. Raises UsageError.

    Returns the suffix of the token, which holds the key, and the sealed settings to send.
    """
    from tunery.platform.node_settings import SEPARATOR, seal_settings

    half = secrets.token_urlsafe(32)
    try:
        return f"{SEPARATOR}{half}", seal_settings(node, half, variables)
    except ValueError as error:
        raise click.UsageError(f"--settings: {error}") from error


EPILOG = """\
\b
Examples:
  tunery node list
  tunery node cordon gpu-07
  tunery node drain gpu-07
  tunery node uncordon gpu-07
  tunery node forget gpu-07
  tunery node withdraw gpu-07
  tunery node enrol gpu-08 --expires 30m
  tunery node enrol gpu-08 --accounts
  tunery node enrol gpu-08 --accounts --settings gpu-08.env
  tunery node enrol spot --uses 40 --expires 2d
  tunery node revoke spot
"""
DURATION: Final = re.compile("([0-9]{1,7})([smhd])")
ALIVE: Final = ("up", "cordoned", "leaving", "noticed")  # silence ends each of them
UNIT_S: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


@click.group("node", cls=_options.ExampleGroup, epilog=EPILOG)
def command() -> None:
    """Show nodes, and take them out of service (admin key)."""


@command.command("list")
@_api.asking
def list_nodes(api: "Api", as_json: bool) -> None:
    """List nodes with their status and, where they get no jobs, why."""
    _api.show(
        api.nodes(),
        as_json,
        {
            "node": "id",
            "pool": "pool",
            "status": "status",
            "slots": _slots,
            "device": lambda node: node["accelerator"] or node["device"],
            "memory": lambda node: f"{node['memory_bytes'] / 1e9:.0f} GB",
            "price": lambda node: node["price_class"].replace("_", "-"),
            "taints": lambda node: ", ".join(node["taints"]),
            "domain": "domain",
            # The log has a proof of life an hour; a node that is alive beats each second.
            "seen": lambda node: "now" if node["status"] in ALIVE else _api.moment(node["seen_at"]),
            "reason": lambda node: " ".join(_reasons(node)),
        },
    )
    if not as_json:
        _show_invited(api.node_invitations())


@command.command()
@click.argument("node")
@click.option("--expires", default="1h", metavar="TIME", help="How long the token works: 30m, 1h.")
@click.option(
    "--uses",
    type=click.IntRange(1, USES_MAX),
    metavar="N",
    help="Let N nodes join by it, named NODE-…, and not NODE. [1 to 500]",
)
@click.option("--pool", help="Pool of a node that never registered. [default]")
@click.option(
    "--accounts",
    is_flag=True,
    help="Make its accounts: at Kafka with a new password, and at the S3 of `tunery up`.",
)
@click.option(
    "--settings",
    "file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File with variables TUNERY_KAFKA_… and TUNERY_S3_… that the node gets, too.",
)
@_options.data_dir
@_options.as_json
def enrol(
    node: str,
    expires: str,
    uses: int | None,
    pool: str | None,
    accounts: bool,
    file: Path | None,
    folders: DataDir,
    as_json: bool,
) -> None:
    """Make a token with which the agent of NODE gets its keys, once.

    It is shown this once. A token of NODE that was made before is void. Settings and passwords are
    sealed with the token's second half, which is not sent anywhere.
    With --uses the nodes have keys of their own, and share settings and accounts.
    """
    body: dict[str, Any] = {"expires_in_seconds": _seconds(expires)}
    if uses is not None:
        body["uses"] = uses
    if pool is not None:
        body["pool"] = pool
    node_accounts = NodeAccounts(folders, node) if accounts else None
    variables = {
        **(node_accounts.variables if node_accounts else {}),
        **read_variables(file),
    }
    half = ""
    if variables:
        half, body["sealed_settings"] = seal(node, variables)
    with _api.connect(folders) as api:
        shown = api.order_node(node, "invite", body)
    if node_accounts is not None:
        node_accounts.create()  # a node that has an account keeps it until the invitation is there
    shown = {**shown, "token": f"{shown['token']}{half}", "settings": sorted(variables)}
    fields = [
        ("node", shown["id"]),
        ("token", shown["token"]),
        *([("nodes", f"{uses}, named {node}{MEMBER}…")] if uses is not None else []),
        ("expires", _api.moment(shown["expires_at"])),
        *([("settings", ", ".join(shown["settings"]))] if variables else []),
        ("use it", "TUNERY_NODE_TOKEN, with TUNERY_NODE_GATEWAY_URL, of the node's agent"),
    ]
    _api.show_one(shown, as_json, fields)


def _seconds(duration: str) -> int:
    """Seconds of a time like 90s, 30m, 1h or 2d. Raises UsageError."""
    match = DURATION.fullmatch(duration)
    if match is None:
        raise click.UsageError(f"--expires {duration}: write a number and s, m, h or d, like 1h")
    return int(match[1]) * UNIT_S[match[2]]


def _fields(node: dict[str, Any]) -> list[tuple[str, object]]:
    status = node.get("status", "never registered")  # where only its invitation is known
    fields: list[tuple[str, object]] = [("node", node["id"]), ("status", status)]
    return [*fields, ("reason", node["reason"])] if node.get("reason") else fields


def _order(order: str, doc: str) -> None:
    @command.command(order, help=doc)
    @click.argument("node")
    @_api.shown(_fields)
    def ordered(api: "Api", node: str) -> Any:
        return api.order_node(node, order)


_order("cordon", "Give NODE no new jobs; what runs there goes on.")
_order("uncordon", "Give NODE new jobs again.")
_order("drain", "Cordon NODE, and let its jobs write a checkpoint and go on elsewhere.")


@command.command()
@click.argument("node")
@_api.asking
def forget(api: "Api", node: str, as_json: bool) -> None:
    """Remove NODE, which is lost or retired and will not come back."""
    forgotten = api.forget_node(node)
    _api.show_one(forgotten, as_json, [("node", node), ("status", "forgotten")])


def _withdrawn_fields(node: dict[str, Any]) -> list[tuple[str, object]]:
    number = node["keys_withdrawn"]
    return [
        *_fields(node),
        ("withdrawn", f"key {number}"),
        ("next key", f"node.{node['id']}#{number + 1}"),
    ]


@command.command()
@click.argument("node")
@_api.shown(_withdrawn_fields)
def withdraw(api: "Api", node: str) -> Any:
    """Refuse all that the present key of NODE has signed; its jobs go on elsewhere.

    The node comes back with the key that is named: `tunery kafka keys` prints it.
    """
    return api.order_node(node, "withdraw")


@command.command()
@click.argument("node")
@_api.shown(lambda revoked: [("node", revoked["id"]), ("status", "nobody joins by its token")])
def revoke(api: "Api", node: str) -> Any:
    """Give nobody keys for the token of NODE any more. Nodes that have theirs keep them."""
    return api.order_node(node, "revoke")


def _show_invited(invitations: Iterable[dict[str, Any]]) -> None:
    """A line for each token that may still be used."""
    for invitation in invitations:
        if invitation["enrolled_at"] is None:
            until, by = _api.moment(invitation["expires_at"]), invitation["invited_by"]
            uses, name = invitation["uses"], invitation["id"]
            of = "" if uses is None else f"{MEMBER}… ({invitation['used']} of {uses} have joined)"
            click.echo(f"{name}{of} is invited until {until}, by key {by}")


def _slots(node: dict[str, Any]) -> str:
    """All slots, and how many of them get jobs where not all do: "7 of 8"."""
    slots, faulty = node["slots"], len(node["device_faults"])
    return f"{slots - faulty} of {slots}" if faulty else str(slots)


def _reasons(node: dict[str, Any]) -> Iterator[str]:
    """Why it, or a device of it, gets no jobs."""
    if node["reason"]:
        yield node["reason"]
    elif node["warned"]:
        yield "may soon be taken away"
    devices: dict[str, list[str]] = {}
    for fault in node["device_faults"]:
        devices.setdefault(fault["reason"], []).append(str(fault["device"]))
    for reason, numbers in devices.items():
        yield f"{'device' if len(numbers) == 1 else 'devices'} {', '.join(numbers)}: {reason}"
