"""The options `--data-dir` and `--json`, types of options, and the group class of commands."""

import math
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import click
from click.shell_completion import CompletionItem

from tunery.cli import _api
from tunery.local.errors import LocalError
from tunery.local.paths import DataDir, default_data_dir

if TYPE_CHECKING:
    from tunery.client import Api
NAMES_MAX: Final = 200
# what an argument or option with this name stands for
SOURCES: Final[dict[str, Callable[["Api"], Iterable[Any]]]] = {
    "job_id": lambda api: api.jobs(NAMES_MAX),
    "job_ids": lambda api: api.jobs(NAMES_MAX),
    "file_id": lambda api: api.files(),
    "model_id": lambda api: api.models("fine-tuned"),
    "model": lambda api: api.bases(),
    "base_id": lambda api: api.bases(),
    "tenant": lambda api: api.tenants(),
    "endpoint_id": lambda api: api.endpoints(),
    "node_id": lambda api: api.nodes(),
}
# next to an id, in shells that show it
HELPS: Final = ("status", "filename", "stage", "url", "name")


class KnownName(click.types.StringParamType):
    """A name that the API knows; any text is accepted, and completed with known names."""

    def __init__(self, source: Callable[["Api"], Iterable[Any]]) -> None:
        self._source = source

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Names that begin with what is typed; none where the API cannot be asked."""
        folders = ctx.params.get("folders") or DataDir(default_data_dir())
        try:
            with _api.connect(folders) as api:
                items = list(islice(self._source(api), NAMES_MAX))
        except (click.ClickException, LocalError):
            return []
        return [
            CompletionItem(item["id"], help=next((item[h] for h in HELPS if item.get(h)), None))
            for item in items
            if item["id"].startswith(incomplete)
        ]


def complete_names(command: click.Command) -> None:
    """Let the arguments and options of a command be completed that stand for known names."""
    for parameter in command.params:
        source = SOURCES.get(parameter.name or "")
        if source is not None and type(parameter.type) is click.types.StringParamType:
            parameter.type = KnownName(source)


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


class Address(NamedTuple):
    """Bucket and prefix of `s3://BUCKET/PREFIX`. The prefix is empty or ends in "/"."""

    bucket: str
    prefix: str

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}"


class FolderOrBucket(click.Path):
    """A folder, as a Path, or `s3://BUCKET/PREFIX`, as an Address."""

    def __init__(self, *, exists: bool = False) -> None:
        super().__init__(exists=exists, file_okay=False, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Raises BadParameter."""
        scheme, is_bucket, path = str(value).partition("://")
        if not is_bucket:
            return super().convert(value, param, ctx)
        bucket, _, prefix = path.partition("/")
        if scheme != "s3" or not bucket:
            self.fail(f"{value!r} is no s3://BUCKET/PREFIX", param, ctx)
        prefix = prefix.strip("/")
        return Address(bucket, f"{prefix}/" if prefix else "")


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
