"""`tunery logs`: the log of a server or service, or the lines of all services about a job."""

import glob
import json
import time
from collections import deque
from collections.abc import Iterator, Mapping
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
  tunery logs --job ftjob-5d2c
  tunery logs --request req_9f1e -n 200
"""


def _complete(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    folders = ctx.params.get("folders") or DataDir(default_data_dir())
    return sorted(path.stem for path in folders.logs.glob(f"{glob.escape(incomplete)}*.log"))


@click.command("logs", epilog=EPILOG)
@click.argument("service", required=False, shell_complete=_complete)
@click.option("--job", "job_id", help="Only lines about this job, of all services, by time.")
@click.option(
    "--request",
    "request_id",
    help="Only lines that follow from the request with this `x-request-id`, of all services.",
)
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
def command(
    service: str | None,
    job_id: str | None,
    request_id: str | None,
    folders: DataDir,
    follow: bool,
    lines_max: int,
) -> None:
    """Print the log of a service or server, or what all services say of a job or a request.

    SERVICE is a service, a server, or `supervisor`. With --job or --request it may be left out.
    """
    named = {"job_id": job_id, "request_id": request_id}
    wanted = {name: value for name, value in named.items() if value is not None}
    if wanted:
        _print_lines(folders, service, wanted, lines_max, follow)
        return
    if service is None:
        raise click.UsageError("Name a service, or use --job or --request.")
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


def _print_lines(
    folders: DataDir,
    service: str | None,
    wanted: Mapping[str, str],
    lines_max: int,
    follow: bool,
) -> None:
    """Print the newest lines with these fields; then, with `follow`, new ones of known files."""
    names = "*" if service is None else glob.escape(service)
    logs = sorted(folders.logs.glob(f"{names}.log"))
    ends = {log: log.stat().st_size for log in logs}
    rotated = folders.logs.glob(f"{names}.log.*")
    lines = [line for log in (*logs, *rotated) for line in matching_lines(log, wanted)]
    if not lines and not follow:
        asked = " and ".join(f"{name} {value}" for name, value in wanted.items())
        raise LocalError(
            f"No line with {asked} in {folders.logs}.",
            "check the id, or name the stack's folder with --data-dir",
        )
    lines.sort(key=lambda line: line[0])
    for _, text in lines[max(0, len(lines) - lines_max) :]:
        click.echo(text)
    try:
        while follow:
            for log in sorted(folders.logs.glob(f"{names}.log")):
                fresh, ends[log] = appended_lines(log, ends.get(log, 0))
                for line in fresh:
                    if time_of(line, wanted) is not None:
                        click.echo(line)
            time.sleep(POLL_MS / 1000)
    except KeyboardInterrupt:
        return


def matching_lines(log: Path, wanted: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The lines of a log that have these fields, each with its time."""
    with log.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            at = time_of(line, wanted)
            if at is not None:
                yield at, line.rstrip("\n")


def time_of(line: str, wanted: Mapping[str, str]) -> str | None:
    """The time of a line that has these fields; None for any other, and for what is no event."""
    if not all(value in line for value in wanted.values()):  # most lines need no reading
        return None
    try:
        fields = json.loads(line)
    except ValueError:
        return None
    if not isinstance(fields, dict) or wanted.items() - fields.items():
        return None
    return str(fields.get("at", ""))


def appended_lines(log: Path, offset: int) -> tuple[list[str], int]:
    """The whole lines after an offset, and where the next one begins. A cut log is read anew."""
    offset, text = appended(log, offset)
    whole, _, _ = text.rpartition(b"\n")
    if not whole:
        return [], offset
    return whole.decode("utf-8", errors="replace").split("\n"), offset + len(whole) + 1


def appended(log: Path, offset: int) -> tuple[int, bytes]:
    """Return the new bytes of a log and their offset: 0 if the file has become shorter."""
    size = log.stat().st_size if log.exists() else 0
    if size < offset:
        offset = 0
    if size == offset:
        return offset, b""
    with log.open("rb") as file:
        file.seek(offset)
        return offset, file.read(size - offset)


def tail(log: Path, offset: int) -> None:
    """Print what is appended to `log`. If the file became shorter, begin again at its start."""
    while True:
        offset, text = appended(log, offset)
        offset += len(text)
        if text:
            click.echo(text.decode("utf-8", errors="replace"), nl=False)
        else:
            time.sleep(POLL_MS / 1000)
