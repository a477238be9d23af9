"""`tunery`: finds the commands in the modules beside it.

A module `tunery/cli/<noun>.py` with an attribute `command` (a click command or group) is the
command `tunery <noun>`; modules without one, and names that begin with `_`, are not commands.
Modules import what is slow inside their functions: `tunery --help` imports them all.
"""

import importlib
import importlib.metadata
import pkgutil
from typing import Final

import click

import tunery.cli
from tunery.local.errors import LocalError

EXAMPLES: Final = """\
\b
Examples:
  tunery up --detach          start everything on this machine
  tunery status               what runs, and where
  tunery logs gateway -f      follow one service
  tunery down                 stop it, in order
"""


class Commands(click.Group):
    """Commands by discovery; errors of ours end with their fix and exit code 1."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        found = []
        for info in pkgutil.iter_modules(tunery.cli.__path__):
            if info.name == "main" or info.name.startswith("_"):
                continue
            if self.get_command(ctx, info.name.replace("_", "-")) is not None:
                found.append(info.name.replace("_", "-"))
        return found

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        name = cmd_name.replace("-", "_")
        if name == "main" or name.startswith("_"):
            return None
        try:
            module = importlib.import_module(f"tunery.cli.{name}")
        except ModuleNotFoundError as problem:
            if problem.name == f"tunery.cli.{name}":
                return None
            raise
        found = getattr(module, "command", None)
        return found if isinstance(found, click.Command) else None

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except LocalError as problem:
            raise click.ClickException(str(problem)) from problem


@click.command(
    cls=Commands, epilog=EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(importlib.metadata.version("tunery"), prog_name="tunery")
def main() -> None:
    """Fine-tune language models on your own machines."""


if __name__ == "__main__":
    main()
