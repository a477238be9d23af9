"""Shared by the commands that use the API: the connection, errors, output."""

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import update_wrapper
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import click

from tunery.cli import _options
from tunery.local.errors import LocalError
from tunery.local.paths import DataDir

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from tunery.client import Api

FILE_PREFIX: Final = "file-"
PIPE_WIDTH: Final = 1_000  # one line per item when the output is not a terminal
NO_CONNECTION: Final = (
    "No API is running or configured.",
    "start a stack with `tunery up`, or set OPENAI_BASE_URL and OPENAI_API_KEY",
)
# for errors whose message cannot know where the address and the key come from
FIXES: Final = {
    "invalid_api_key": "set OPENAI_API_KEY to a valid key, or unset it and OPENAI_BASE_URL "
    "to use the stack of --data-dir",
    "insufficient_permissions": "use a key with that scope; that of the operator of a stack: "
    'eval "$(tunery env --operator)"',
    "unknown": "check that OPENAI_BASE_URL is the address of this API; it ends with /v1",
}


Decorator: TypeAlias = Callable[[Callable[..., Any]], Callable[..., None]]
#: name of a column → the field that it shows, or what makes its text of an item
Columns: TypeAlias = Mapping[str, str | Callable[[Any], Any]]


def add_list(
    group: click.Group, words: str, fetch: "Callable[[Api], Iterable[Any]]", columns: Columns
) -> None:
    """Add the command `list` of a resource: a row for each object that the API lists."""
    group.command("list", help=words)(listed(columns)(fetch))


def listed(columns: Columns) -> Decorator:
    """Print the objects that a command returns, a row for each."""
    return answered(lambda items, as_json: show(items, as_json, columns))


def shown(fields: "Callable[[Any], Iterable[tuple[str, Any]]]") -> Decorator:
    """Print the object that a command returns, a line for each of its fields."""
    return answered(lambda item, as_json: show_one(item, as_json, fields(item)))


def removed(how: str) -> Decorator:
    """Print that what a command names was `deleted` or `revoked`."""
    return answered(lambda name, as_json: show_removed(name, how, as_json))


def answered(show: Callable[[Any, bool], None]) -> Decorator:
    """Show what a command returns, which gets the API."""

    def decorated(function: Callable[..., Any]) -> Callable[..., None]:
        def command(api: "Api", as_json: bool, **options: Any) -> None:
            show(function(api, **options), as_json)

        return asking(update_wrapper(command, function))

    return decorated


def asking(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command the API and `as_json`, by the options `--data-dir` and `--json`."""

    @_options.data_dir
    @_options.as_json
    def command(folders: DataDir, **options: Any) -> None:
        with connect(folders) as api:
            function(api, **options)

    return update_wrapper(command, function)


@contextmanager
def connect(folders: DataDir) -> Iterator["Api"]:
    """Connect to OPENAI_BASE_URL with OPENAI_API_KEY if both are set, else to the local stack.

    An explicit `--data-dir` has precedence over the environment. Raises LocalError when there is no
    API or it does not answer, ClickException when it refuses the request.
    """
    with connected(*address(folders)) as api:
        yield api


@contextmanager
def connected(url: str, key: str) -> Iterator["Api"]:
    """Connect to an address, with /v1. Raises LocalError and ClickException as `connect` does."""
    from tunery.client import Api, ApiRefusal, Unreachable

    try:
        with Api(url, key) as api:
            yield api
    except Unreachable as error:
        fix = "see `tunery status`, start it with `tunery up`; or correct OPENAI_BASE_URL"
        raise LocalError(str(error), fix) from None
    except ApiRefusal as refusal:
        where = f" ({refusal.param})" if refusal.param else ""
        what = f"{refusal.message}{where} [{refusal.code}]"
        if refusal.code in FIXES:
            raise LocalError(what, FIXES[refusal.code]) from None
        raise click.ClickException(what) from None


def complete(
    api: "Api", model: str, messages: Sequence[dict[str, str]], options: Mapping[str, Any]
) -> dict[str, Any]:
    """Request a chat completion of a conversation and return it. Raises ApiRefusal."""
    return api.post("chat", "completions", model=model, messages=list(messages), **options)


def is_uploaded(name: str) -> bool:
    """True if `name` is the id or name (`faq@2`) of an uploaded file, not of a local file."""
    return (name.startswith(FILE_PREFIX) or "@" in name) and not Path(name).exists()


def address(folders: DataDir) -> tuple[str, str]:
    """The base URL, with /v1, and the key that commands use. Raises LocalError without any."""
    from tunery.local import state

    context = click.get_current_context(silent=True)
    source = context.get_parameter_source("folders") if context else None
    explicit = source is click.core.ParameterSource.COMMANDLINE
    url, key = os.environ.get("OPENAI_BASE_URL"), os.environ.get("OPENAI_API_KEY")
    if url and key and not explicit:
        return url, key
    connection = state.connection(folders, {} if explicit else dict(os.environ))
    if connection is None:
        raise LocalError(*NO_CONNECTION)
    return f"{connection.api_url}/v1", connection.api_key


def show(data: Any, as_json: bool, columns: Columns) -> None:
    """Print a table with a row per item, or one JSON document."""
    cells = [itemgetter(field) if isinstance(field, str) else field for field in columns.values()]
    show_rows(data, as_json, (*columns,), lambda item: [cell(item) for cell in cells])


def show_rows(
    data: Any, as_json: bool, columns: Sequence[str], row: Callable[[Any], Sequence[Any]]
) -> None:
    """Print a table whose columns depend on its items, or one JSON document."""
    items = list(data)
    if as_json:
        click.echo(json.dumps(items))
        return
    from tunery.cli._tables import table_lines

    if items:
        _print(lambda width, dim: table_lines(columns, map(row, items), width, dim))
    else:
        click.echo("No entries.")


def show_one(item: Any, as_json: bool, pairs: Iterable[tuple[str, Any]]) -> None:
    """Print one item with a line per field that has a value, or one JSON document."""
    if as_json:
        click.echo(json.dumps(item))
        return
    from tunery.cli._tables import field_lines

    _print(lambda width, dim: field_lines(pairs, width, dim))


def _print(lines_of: "Callable[[int | None, str], Iterable[Text]]") -> None:
    """Print lines that are made for the width of the terminal; a pipe gets all of each value."""
    console = screen()
    dim = "none" if console.no_color else "dim"
    for line in lines_of(console.width if interactive() else None, dim):
        console.print(line, soft_wrap=True, highlight=False)


def show_removed(name: str, how: str, as_json: bool) -> None:
    """Print that `name` was `deleted` or `revoked`."""
    click.echo(json.dumps({"id": name, how: True}) if as_json else f"{name} {how}")


def figure(value: float | None) -> str | None:
    """A loss or a share with four digits."""
    return None if value is None else f"{value:.4f}"


def moment(seconds: int | None) -> str:
    """Format a Unix timestamp in seconds as local time with its zone; empty for None."""
    if seconds is None:
        return ""
    return datetime.fromtimestamp(seconds, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")


def size(count: int) -> str:
    """Format a number of bytes with a decimal unit."""
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1_000 or unit == "GB":
            break
        value /= 1_000
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"


def money(micro: int | None, currency: str) -> str:
    return "" if micro is None else f"{micro / 1e6:.4f} {currency}"


def hours(gpu_ms: int | None) -> str:
    return "" if gpu_ms is None else f"{gpu_ms / 3_600_000:.3f} GPU-h"


def gpu_time(gpu_ms: int, *, blank: bool = False) -> str:
    """Format GPU-milliseconds exactly: `0:08:31.250`; credits are negative."""
    if blank and gpu_ms == 0:
        return ""
    seconds, ms = divmod(abs(gpu_ms), 1000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{'-' if gpu_ms < 0 else ''}{hours}:{minutes:02}:{seconds:02}.{ms:03}"


def hour(seconds: int) -> str:
    """Format the beginning of a billed hour, in UTC as on invoices."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"


def screen() -> "Console":
    """Return the console for tables: as wide as the terminal, or PIPE_WIDTH in a pipe."""
    from rich.console import Console

    return Console(width=None if interactive() else PIPE_WIDTH)


def interactive() -> bool:
    return sys.stdout.isatty()
