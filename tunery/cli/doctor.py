"""`tunery doctor`: checks what a stack needs on this machine."""

import json
import sys
from dataclasses import asdict

import click
from rich.console import Console

from tunery.cli import _options
from tunery.cli._production_checks import check_production
from tunery.cli._upgrade_checks import check_upgrade
from tunery.local.doctor import examine
from tunery.local.paths import DataDir

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
