"""`tunery`: finds the commands in the modules beside it.

A module `tunery/cli/<noun>.py` with an attribute `command` (a click command or group) is the
command `tunery <noun>`; modules without one, and names that begin with `_`, are not commands.
`tunery --help` imports all modules, so they import slow packages inside their functions.
"""

import importlib
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


class CommandModules(click.Group):
    """A group that discovers its commands. A LocalError is printed with its fix; exit code 1."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        names = []
        for info in pkgutil.iter_modules(tunery.cli.__path__):
            if info.name == "main" or info.name.startswith("_"):
                continue
            if self.get_command(ctx, info.name.replace("_", "-")) is not None:
                names.append(info.name.replace("_", "-"))
        return names

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module of `cmd_name`; None when there is none.

        Raises ModuleNotFoundError when that module imports something that is not installed.
        """
        name = cmd_name.replace("-", "_")
        if name == "main" or name.startswith("_"):
            return None
        try:
            module = importlib.import_module(f"tunery.cli.{name}")
        except ModuleNotFoundError as problem:
            if problem.name == f"tunery.cli.{name}":
                return None
            raise
        candidate = getattr(module, "command", None)
        return candidate if isinstance(candidate, click.Command) else None

    def invoke(self, ctx: click.Context) -> object:
        """Run the command. Raises ClickException in place of LocalError."""
        try:
            return super().invoke(ctx)
        except LocalError as problem:
            raise click.ClickException(str(problem)) from problem


@click.command(
    cls=CommandModules, epilog=EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(package_name="tunery", prog_name="tunery")
def main() -> None:
    """Fine-tune language models on your own machines."""


if __name__ == "__main__":
    main()
