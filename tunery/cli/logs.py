"""`tunery logs`: the log of a server or service."""

import glob
import time
from collections import deque
from pathlib import Path

import click

from tunery.cli import _options
from tunery.local.errors import LocalError
from tunery.local.paths import DataDir, default_data_dir

POLL_MS = 200

EPILOG = """\
\b
Examples:
  tunery logs gateway
  tunery logs kafka -n 200
  tunery logs scheduler -f
"""


def _complete(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    folders = ctx.params.get("folders") or DataDir(default_data_dir())
    return sorted(path.stem for path in folders.logs.glob(f"{glob.escape(incomplete)}*.log"))


@click.command("logs", epilog=EPILOG)
@click.argument("service", shell_complete=_complete)
@_options.data_dir
@click.option("--follow", "-f", is_flag=True, help="Print new lines as they are written.")
@click.option(
    "--lines",
    "-n",
    "lines_max",
    default=50,
    show_default=True,
    help="Lines from the end.",
)
def command(service: str, folders: DataDir, follow: bool, lines_max: int) -> None:
    """Print the log of a service or server.

    SERVICE is a service, a server, or `supervisor`.
    """
    log = folders.log(service)
    if not log.is_file():
        known = sorted(path.stem for path in folders.logs.glob("*.log"))
        there = f"logs exist for {', '.join(known)}" if known else f"{folders.logs} is empty"
        raise LocalError(
            f"No log of `{service}`; {there}.",
            "start the stack with `tunery up`, or name its folder with --data-dir",
        )
    with log.open(encoding="utf-8", errors="replace") as file:
        for line in deque(file, maxlen=lines_max):
            click.echo(line, nl=False)
        offset = file.tell()
    if follow:
        try:
            tail(log, offset)
        except KeyboardInterrupt:
            return


def tail(log: Path, offset: int) -> None:
    """Print what is appended to `log`. If the file became shorter, begin again at its start."""
    while True:
        size = log.stat().st_size if log.exists() else 0
        if size < offset:
            offset = 0
        if size > offset:
            with log.open("rb") as file:
                file.seek(offset)
                text = file.read(size - offset)
            offset += len(text)
            click.echo(text.decode("utf-8", errors="replace"), nl=False)
        else:
            time.sleep(POLL_MS / 1000)
