"""The options `--data-dir` and `--json`, types of options, and the group class of commands."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from tunery.cli._names import complete_names
from tunery.local.paths import DataDir, default_data_dir

F = TypeVar("F", bound=Callable[..., Any])
EXAMPLES: Final = "\b\nExamples:\n"


class ExampleGroup(click.Group):
    """A group with examples in its epilog. Each command shows the examples that begin with it."""

    def add_command(self, cmd: click.Command, name: str | None = None) -> None:
        """Add a command with its examples, and with completion of the names that it takes."""
        super().add_command(cmd, name)
        complete_names(cmd)
        verb = name or cmd.name
        examples = [
            line
            for line in (self.epilog or "").splitlines()
            if f"{line} ".startswith(f"  tunery {self.name} {verb} ")
        ]
        if examples and EXAMPLES not in (cmd.epilog or ""):
            rest = f"\n\n{cmd.epilog}" if cmd.epilog else ""
            cmd.epilog = EXAMPLES + "\n".join(examples) + rest


class Number(click.FloatRange):
    """A number in a range. What Python reads besides numbers, such as "nan", is refused."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Raises BadParameter."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a number", param, ctx)
        return number


def _to_folders(_ctx: click.Context, _param: click.Parameter, value: Path | None) -> DataDir:
    return DataDir((value or default_data_dir()).expanduser().absolute())


def data_dir(function: F) -> F:
    """`--data-dir`, given to the command as `folders: DataDir`."""
    return click.option(
        "--data-dir",
        "folders",
        type=click.Path(path_type=Path, file_okay=False),
        callback=_to_folders,
        help="The data directory of the stack. [$TUNERY_DATA_DIR, else ~/.local/share/tunery]",
    )(function)


def as_json(function: F) -> F:
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")(function)
