"""`tunery doctor`: what is missing, and the fix."""

import json
import sys
from dataclasses import asdict

import click
from rich.console import Console

from tunery.cli import _options
from tunery.local.doctor import examine
from tunery.local.paths import DataDir

EPILOG = """\
\b
Exit code 0 when nothing is missing, 1 when something is.
\b
Examples:
  tunery doctor
  tunery doctor --json | jq '.[] | select(.fix != "")'
"""


@click.command("doctor", epilog=EPILOG)
@_options.data_dir
@_options.as_json
def command(folders: DataDir, as_json: bool) -> None:
    """Look for what keeps the stack from running here, and name the fix."""
    findings = list(examine(folders))
    if as_json:
        click.echo(json.dumps([asdict(one) for one in findings]))
    else:
        console = Console()
        for one in findings:
            mark = "[green]✓[/green]" if one.is_well else "[red]✗[/red]"
            console.print(f"{mark} {one.name:<12}", end="", highlight=False)
            console.print(one.found, highlight=False, markup=False, soft_wrap=True)
            if one.fix:
                console.print(f"    fix: {one.fix}", highlight=False, markup=False, soft_wrap=True)
    sys.exit(0 if all(one.is_well for one in findings) else 1)
