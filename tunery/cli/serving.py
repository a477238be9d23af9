"""`tunery serving`: replicas that answer for deployments, on nodes of the scheduler's pool."""

from typing import TYPE_CHECKING, Any

import click

from tunery.cli import _api, _options

if TYPE_CHECKING:
    from tunery.client import Api

REPLICAS = click.IntRange(0, 32)
EPILOG = """\
\b
Examples:
  tunery serving create smollm2-135m --replicas 2
  tunery deploy start ft:smol:acme:demo:1a2b3c4d --serving-pool spool-0123456789abcdef01234567
  tunery serving list
  tunery serving show spool-0123456789abcdef01234567
  tunery serving scale spool-0123456789abcdef01234567 4
  tunery serving remove spool-0123456789abcdef01234567
"""


@click.group("serving", cls=_options.ExampleGroup, epilog=EPILOG)
def command() -> None:
    """Serving pools: replicas on nodes, which the scheduler places, replaces and bills."""


def _fields(pool: dict[str, Any]) -> list[tuple[str, Any]]:
    fields = [
        ("serving pool", pool["id"]),
        ("model", pool["model"]),
        ("ready", f"{pool['ready']} of {pool['replicas']}"),
        ("each", f"{pool['slots']} slots for {pool['term_minutes']} minutes, then the next one"),
    ]
    for term in pool["terms"]:
        node = "" if term["node"] is None else f" on {term['node']}"
        fields.append((term["id"], f"{term['state']}{node} since {_api.moment(term['since'])}"))
    if pool["stalled"] is not None:
        fields.append(("stalled", pool["stalled"]["message"]))
    return fields


@command.command("create")
@click.argument("model")
@click.option("--replicas", type=REPLICAS, default=1, help="[1]")
@click.option("--slots", type=click.IntRange(1, 64), default=1, help="Of each replica. [1]")
@click.option(
    "--term-minutes",
    type=click.IntRange(2, 1_440),
    default=60,
    help="A replica is replaced by one with a new hold after them. [60]",
)
@_api.shown(_fields)
def create(api: "Api", model: str, replicas: int, slots: int, term_minutes: int) -> Any:
    """Let replicas of the base model MODEL answer, with its versions that are deployed to them."""
    body = {"model": model, "replicas": replicas, "slots": slots, "term_minutes": term_minutes}
    return api.post("serving_pools", **body)


@command.command("scale")
@click.argument("serving_pool")
@click.argument("replicas", type=REPLICAS)
@_api.shown(_fields)
def scale(api: "Api", serving_pool: str, replicas: int) -> Any:
    """Want another number of replicas. A serving pool that is stalled is tried again."""
    return api.post("serving_pools", serving_pool, replicas=replicas)


_api.add_list(
    command,
    "List serving pools and how many of their replicas answer.",
    lambda api: api.get("serving_pools")["data"],
    {
        "serving pool": "id",
        "model": "model",
        "ready": lambda pool: f"{pool['ready']} of {pool['replicas']}",
        "stalled": lambda pool: "" if pool["stalled"] is None else pool["stalled"]["message"],
    },
)


@command.command("show")
@click.argument("serving_pool")
@_api.shown(_fields)
def show(api: "Api", serving_pool: str) -> Any:
    """Show what each replica is doing, and why one is missing."""
    return api.get("serving_pools", serving_pool)


@command.command("remove")
@click.argument("serving_pool")
@_api.removed("deleted")
def remove(api: "Api", serving_pool: str) -> str:
    """Remove a serving pool: its replicas finish what they answer, and end."""
    api.write("DELETE", "serving_pools", serving_pool)
    return serving_pool
