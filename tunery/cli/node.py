"""`tunery node`: shows the machines that run jobs, and takes them out of service."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from schemas.enrolment import MEMBER, USES_MAX
from tunery.cli import _api, _node_accounts, _options
from tunery.local.paths import DataDir

if TYPE_CHECKING:
    from tunery.client import Api

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
    node_accounts = _node_accounts.NodeAccounts(folders, node) if accounts else None
    variables = {
        **(node_accounts.variables if node_accounts else {}),
        **_node_accounts.read_variables(file),
    }
    half = ""
    if variables:
        half, body["sealed_settings"] = _node_accounts.seal(node, variables)
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
