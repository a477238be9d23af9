"""`tunery deploy`: which versions answer in a stage."""

from typing import TYPE_CHECKING, Any

import click

from tunery.cli import _api, _options

if TYPE_CHECKING:
    from tunery.client import Api

STAGES = ("staging", "production")
EPILOG = """\
\b
Examples:
  tunery deploy start ft:smol:acme:demo:1a2b3c4d
  tunery deploy start ft:smol:acme:demo:1a2b3c4d --with ft:smol:acme:demo:5e6f7a8b --share 10
  tunery deploy start ft:smol:acme:demo:1a2b3c4d --shadow ft:smol:acme:demo:5e6f7a8b
  tunery deploy list
  tunery deploy show ft:smol:acme:demo:production
  tunery deploy end ft:smol:acme:demo:production
"""


@click.group("deploy", cls=_options.ExampleGroup, epilog=EPILOG)
def command() -> None:
    """Let versions answer under one name: one alone, two that share callers, one unseen."""


def _fields(deployment: dict[str, Any]) -> list[tuple[str, Any]]:
    fields = [("name", deployment["id"]), ("since", _api.moment(deployment["since"]))]
    fields.append(("serving pool", deployment["serving_pool"]))
    for arm in deployment["versions"]:
        counts = f"{arm['answers']} answers, {arm['failures']} failures"
        if arm["answer_ms"] is not None:
            counts += f", {arm['answer_ms']} ms each"
        health = arm["health"]
        state = "" if health is None else f"{health['state']}: {health['message'] or 'answers'}; "
        fields.append((arm["role"], f"{_version(arm)}; {state}{counts}"))
    ratio = deployment["sample_ratio"]
    if ratio is not None:
        fields.append(("callers", f"{ratio['callers']}, of the second {ratio['second']}"))
        if ratio["mismatch"]:
            text = f"answers of a version are missing (p = {ratio['p_value']:.2g}): do not compare"
            fields.append(("sample ratio", text))
    return fields


@command.command("start")
@click.argument("model")
@click.option("--stage", type=click.Choice(STAGES), default="production", help="[production]")
@click.option("--with", "second", help="Another version, for a share of the callers.")
@click.option("--share", type=_options.Number(0.01, 99.99), help="Of --with, in percent. [10]")
@click.option("--shadow", help="A version that is asked too; its answers are only counted.")
@click.option("--shadow-share", type=_options.Number(0.01, 100), help="In percent. [100]")
@click.option("--serving-pool", help="Whose replicas answer. [the engine of this machine]")
@click.option("--expected", help="The version that must hold the stage now. [the one that does]")
@_api.shown(_fields)
def start(
    api: "Api",
    model: str,
    stage: str,
    second: str | None,
    share: float | None,
    shadow: str | None,
    shadow_share: float | None,
    serving_pool: str | None,
    expected: str | None,
) -> Any:
    """Let MODEL answer in a stage. What is not given ends: the last command is what holds."""
    if (share is not None and second is None) or (shadow_share is not None and shadow is None):
        raise click.UsageError("--share needs --with, and --shadow-share needs --shadow.")
    body: dict[str, Any] = {"stage": stage}
    if serving_pool is not None:
        body["serving_pool"] = serving_pool
    if second is not None:
        of_second = 10.0 if share is None else share
        body["traffic"] = {model: round(100 - of_second, 2), second: of_second}
    if shadow is not None:
        body["shadow"] = {"model": shadow, "share": 100.0 if shadow_share is None else shadow_share}
    if expected is None:
        series = api.model(model).get("series")
        held = [
            deployment["model"]
            for deployment in api.get("deployments")["data"]
            if (deployment["series"], deployment["stage"]) == (series, stage)
        ]
        expected = held[0] if held else None
    return api.post("models", model, "deploy", **body, expected=expected)


_api.add_list(
    command,
    "List the stages that versions hold, and the names under which they answer.",
    lambda api: api.get("deployments")["data"],
    {
        "name": "id",
        "versions": lambda item: ", ".join(_version(arm) for arm in item["versions"]),
        "since": lambda item: _api.moment(item["since"]),
    },
)


@command.command("show")
@click.argument("name")
@_api.shown(_fields)
def show(api: "Api", name: str) -> Any:
    """Show what answers under NAME, what it has answered, and whether it is ready."""
    return api.get("deployments", name)


@command.command("end")
@click.argument("name")
@_api.removed("deleted")
def end(api: "Api", name: str) -> str:
    """Let nothing answer under NAME any more: no version holds its stage."""
    api.write("DELETE", "deployments", name)
    return name


def _version(arm: dict[str, Any]) -> str:
    of = "of questions, unseen" if arm["role"] == "shadow" else "of callers"
    return f"{arm['model']} ({arm['share']:g} % {of})"
