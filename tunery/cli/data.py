"""`tunery data`: what is wrong with a file, before anything is uploaded. Needs no server."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from tunery.cli import _options

if TYPE_CHECKING:
    from tunery.data.report import Report

REJECTED, UNREADABLE = 1, 2
EPILOG = """\
\b
Examples:
  tunery data check train.jsonl
  tunery data check *.jsonl --model ~/.cache/tunery/bases/smollm2-135m-instruct
  tunery data check train.parquet --json | jq .counts
  tunery data check saved_by_datasets/
\b
Exit code: 0 all accepted, 1 one was rejected, 2 one could not be read.
"""


@click.group("data", epilog=EPILOG)
def command() -> None:
    """Check training files."""


@command.command("check", epilog=EPILOG)
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--model",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Folder of a base model: counts tokens with its own tokenizer and template.",
)
@click.option(
    "--min-rows",
    type=click.IntRange(min=0),
    default=10,
    show_default=True,
    help="Fewer rows are rejected.",
)
@_options.as_json
def check(files: tuple[Path, ...], model: Path | None, min_rows: int, as_json: bool) -> None:
    """Name every bad row of FILES: row, line, pointer, code, and what to do about it."""
    worst = 0
    for path in files:
        worst = max(worst, _check(path, model, min_rows, as_json))
    sys.exit(worst)


def _check(path: Path, model: Path | None, min_rows: int, as_json: bool) -> int:
    from rich.console import Console

    from tunery.data.checking import check as check_file
    from tunery.data.rendering import BaseUnusable
    from tunery.data.showing import render_report

    try:
        report: Report = check_file(path, base_dir=model, min_rows=min_rows)
    except OSError as error:
        click.echo(f"{path}: {error.strerror}; check the name and its permissions", err=True)
        return UNREADABLE
    except BaseUnusable as error:
        click.echo(f"--model {model}: {error}", err=True)
        return UNREADABLE
    if as_json:
        click.echo(msgspec.json.encode(report.summary()))
    else:
        Console().print(render_report(report, path.name))
    return 0 if report.verdict == "accepted" else REJECTED
