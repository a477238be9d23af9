"""`tunery doctor`: checks what a stack needs on this machine."""

import asyncio
import json
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

import click
from rich.console import Console

from tunery.cli import _options
from tunery.cli._production_checks import check_production
from tunery.local.doctor import Diagnosis, examine
from tunery.local.paths import DataDir

if TYPE_CHECKING:
    from tunery.runtime.tools.upgrade import RunningProcess, UpgradeState

# Checks of a running installation that gets another release, in the order of an upgrade.


def check_upgrade(folders: DataDir) -> list[Diagnosis]:
    """Check topics, services, nodes and the level of the log. Raises LocalError."""
    from tunery.cli.upgrade import read_state
    from tunery.local.settings import log_settings
    from tunery.platform.bus.preparation import topics_behind
    from tunery.platform.connections import patient_kafka_settings
    from tunery.runtime.hosts.levels import release

    settings = patient_kafka_settings(log_settings(folders, os.environ))
    behind = asyncio.run(topics_behind(settings))
    state = asyncio.run(read_state(folders, None))
    return [prepared(behind), *diagnose(state, release())]


def prepared(behind: list[str]) -> Diagnosis:
    """Whether Kafka has the topics of this release."""
    if not behind:
        return Diagnosis("topics", "all are as this release needs them")
    detail = f"{len(behind)} are missing or have older settings: {', '.join(behind)}"
    return Diagnosis("topics", detail, "tunery kafka prepare")


def diagnose(state: "UpgradeState", release: str) -> Iterator[Diagnosis]:
    """Yield the findings on services, nodes and level. release: that of this tool."""
    from schemas.streams import node_of

    nodes = [each for each in state.processes if node_of(each.service) is not None]
    services = [each for each in state.processes if node_of(each.service) is None]
    missing = [f"no {service} runs" for service in state.missing]
    yield _updated("services", services, release, missing)
    yield _updated("nodes", nodes, release, ())
    at = f"the log is at level {state.level}"
    if state.level >= state.readable:
        yield Diagnosis("level", at)
    elif waited_for := state.waited_for():
        detail = f"{at}, and {state.readable} is possible after: {'; '.join(waited_for)}"
        yield Diagnosis("level", detail, "update these; until then you can still go back")
    else:
        detail = f"{at}, and all can read level {state.readable}; until then you can still go back"
        yield Diagnosis("level", detail, "tunery upgrade finalize")


def _updated(
    name: str, processes: Iterable["RunningProcess"], release: str, missing: Iterable[str]
) -> Diagnosis:
    """Whether all run the release of this tool."""
    others = [
        f"{each.process} runs {each.release}" for each in processes if each.release != release
    ]
    wrong = [*missing, *others]
    if not wrong:
        return Diagnosis(name, f"all run {release}")
    return Diagnosis(name, "; ".join(wrong), f"start them with {release}")


EPILOG = """\
\b
Exit code 0 when nothing is missing, 1 when something is.
\b
Examples:
  tunery doctor
  tunery doctor --json | jq '.[] | select(.fix != "")'
  tunery doctor --upgrade          a running installation, while it gets another release
  tunery doctor --production       an installation that others depend on
"""


@click.command("doctor", epilog=EPILOG)
@click.option(
    "--upgrade",
    is_flag=True,
    help="Check topics, releases and level of a running installation instead, in their order.",
)
@click.option(
    "--production",
    is_flag=True,
    help="Check servers, rights, keys, clocks and certificates of an installation instead.",
)
@_options.data_dir
@_options.as_json
def command(folders: DataDir, upgrade: bool, production: bool, as_json: bool) -> None:
    """Check this machine, and print how to fix what is missing."""
    if upgrade and production:
        raise click.UsageError("Give --upgrade or --production.")
    if upgrade:
        findings = check_upgrade(folders)
    else:
        findings = check_production(folders) if production else list(examine(folders))
    if as_json:
        click.echo(json.dumps([asdict(finding) for finding in findings]))
    else:
        console = Console()
        for finding in findings:
            mark = "[green]✓[/green]" if finding.is_well else "[red]✗[/red]"
            console.print(f"{mark} {finding.name:<12}", end="", highlight=False)
            console.print(finding.detail, highlight=False, markup=False, soft_wrap=True)
            if finding.fix:
                console.print(
                    f"    fix: {finding.fix}", highlight=False, markup=False, soft_wrap=True
                )
    sys.exit(0 if all(finding.is_well for finding in findings) else 1)
