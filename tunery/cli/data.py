"""`tunery data`: checks and compares files before they are uploaded. Needs no server."""

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from tunery.cli import _api, _options
from tunery.local.errors import LocalError
from tunery.local.paths import DataDir, cache_dir

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from schemas.dataset import LengthPolicy, ReasoningPolicy
    from tunery.data.reports.report import CheckReport
    from tunery.data.screening.contamination import BenchmarkItem
    from tunery.data.screening.screening import Personal
    from tunery.data.versions import Difference

REJECTED, UNREADABLE = 1, 2
DIFFERENT = 1
ROWS_SHOWN_MAX = 20  # `--json` has up to 1,000
DIFF_EPILOG = """\
\b
Examples:
  tunery data diff monday.jsonl tuesday.jsonl
  tunery data diff faq@1 faq@2            uploaded versions
\b
Exit code: 0 same rows, 1 different rows, 2 a file could not be read.
"""
EPILOG = """\
\b
Examples:
  tunery data check train.jsonl
  tunery data check *.jsonl --model smollm2-135m-instruct
  tunery data check train.parquet --json | jq .counts
  tunery data check saved_by_datasets/ --html report.html
  tunery data check train.jsonl --benchmarks gsm8k --personal warn
  tunery data check pages.jsonl --model my-base --max-length 2048 --length-policy split
\b
Exit code: 0 all files accepted, 1 a file was rejected, 2 a file could not be read.
"""


GROUP_EPILOG = """\
\b
Examples:
  tunery data check train.jsonl
  tunery data check *.jsonl --model smollm2-135m-instruct
  tunery data diff monday.jsonl tuesday.jsonl
  tunery data diff faq@1 faq@2            uploaded versions
"""


@click.group("data", epilog=GROUP_EPILOG)
def command() -> None:
    """Check training files, and compare their versions."""


@command.command("check", epilog=EPILOG)
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--model",
    metavar="BASE",
    callback=lambda _, __, value: None if value is None else _base(value),
    help="Base model, by name or folder: count tokens with its tokenizer and chat template.",
)
@click.option(
    "--min-rows",
    type=click.IntRange(min=0),
    default=10,
    show_default=True,
    help="Fewer rows are rejected.",
)
@click.option(
    "--max-length",
    type=click.IntRange(min=2),
    metavar="TOKENS",
    help="Maximum tokens of a row, with --model; default: the base model's context.",
)
@click.option(
    "--length-policy",
    type=click.Choice(("reject", "truncate", "split")),
    default="reject",
    show_default=True,
    help="What happens to longer rows; `split` is for plain text.",
)
@click.option(
    "--reasoning",
    type=click.Choice(("keep", "drop")),
    default="keep",
    show_default=True,
    help="Whether the reasoning of answers is learned, or removed first.",
)
@click.option(
    "--benchmarks",
    "names",
    multiple=True,
    metavar="NAME",
    help="Report rows that contain items of this benchmark; `all` for every added benchmark.",
)
@click.option(
    "--personal",
    type=click.Choice(("ignore", "warn", "block")),
    default="ignore",
    show_default=True,
    help="What to do about e-mail addresses, telephone, card and account numbers.",
)
@click.option(
    "--personal-model",
    metavar="MODEL",
    help="Also recognise names of people: `presidio` (extra `pii`) or your module:callable.",
)
@click.option(
    "--toxicity-model",
    metavar="MODEL",
    help="Rate every row with this module:callable, and report toxic rows.",
)
@click.option(
    "--html",
    type=click.Path(path_type=Path, dir_okay=False, writable=True),
    metavar="OUT",
    help="Write the report of one file as an HTML page.",
)
@_options.data_dir
@_options.as_json
def check(
    files: tuple[Path, ...],
    model: Path | None,
    min_rows: int,
    max_length: int | None,
    length_policy: "LengthPolicy",
    reasoning: "ReasoningPolicy",
    names: tuple[str, ...],
    personal: "Personal",
    personal_model: str | None,
    toxicity_model: str | None,
    html: Path | None,
    folders: DataDir,
    as_json: bool,
) -> None:
    """Report every bad row of FILES: row, line, pointer, code, and how to fix it."""
    from tunery.data.checking import check as check_file
    from tunery.data.screening.screening import ScreeningPolicy

    if html is not None and (len(files) > 1 or as_json):
        raise click.UsageError("--html needs exactly one file, and cannot be used with --json.")
    if max_length is not None and model is None:
        raise click.UsageError("--max-length counts tokens: name a base model with --model.")
    if personal_model is not None and personal == "ignore":
        raise click.UsageError("--personal-model has no effect: add --personal warn or block.")

    check_rows = partial(
        check_file,
        base_dir=model,
        min_rows=min_rows,
        max_length=max_length or _context(model),
        length_policy=length_policy,
        reasoning=reasoning,
        policy=ScreeningPolicy(
            personal=personal, personal_model=personal_model, toxicity_model=toxicity_model
        ),
        benchmarks=_items(folders, names),
    )
    show = _as_json if as_json else _as_text if html is None else partial(_as_page, html)
    sys.exit(max(_check(path, check_rows, show) for path in files))


@command.command("diff", epilog=DIFF_EPILOG)
@click.argument("before")
@click.argument("after")
@_options.data_dir
@_options.as_json
def diff(before: str, after: str, folders: DataDir, as_json: bool) -> None:
    """Compare two versions of a dataset: rows added, removed, and with another answer.

    BEFORE and AFTER are two local files, or the ids or names (faq@1) of two uploaded files.
    """
    difference = _difference(before, after, folders)
    if as_json:
        click.echo(msgspec.json.encode(difference))
    else:
        same = "1 row is" if difference.same == 1 else f"{difference.same:,} rows are"
        click.echo(f"{difference.before.id} → {difference.after.id}: {same} the same")
        _listing("added", difference.added_count, difference.added)
        _listing("removed", difference.removed_count, difference.removed)
        _listing("changed", difference.changed_count, [f"{a} → {b}" for a, b in difference.changed])
        for version in (difference.before, difference.after):
            if version.faulty:
                noun = "row" if version.faulty == 1 else "rows"
                click.echo(f"not compared: {version.faulty:,} invalid {noun} of {version.id}")
    sys.exit(0 if difference.is_empty else DIFFERENT)


def _difference(before: str, after: str, folders: DataDir) -> "Difference":
    from tunery.data.versions import Difference, diff

    missing = [name for name in (before, after) if not Path(name).exists()]
    if _api.is_uploaded(before) and _api.is_uploaded(after):
        try:
            with _api.connect(folders) as api:
                return msgspec.convert(api.diff(before, after), Difference)
        except (LocalError, click.ClickException) as problem:
            click.echo(f"Error: {problem}", err=True)
            sys.exit(UNREADABLE)  # 1 would mean that their rows differ
    if missing:
        raise click.UsageError(
            f"There is no file {missing[0]}. Compare two local files, or two uploaded files by id "
            "or name, such as faq@1."
        )
    try:
        return diff(Path(before), Path(after))
    except OSError as error:
        click.echo(f"{error.filename}: {error.strerror}", err=True)
        sys.exit(UNREADABLE)


def _listing(title: str, count: int, rows: "Sequence[object]") -> None:
    shown = ", ".join(map(str, rows[:ROWS_SHOWN_MAX]))
    more = ", …" if count > ROWS_SHOWN_MAX else ""
    noun = "row" if count == 1 else "rows"
    click.echo(f"{title}: {count:,}{f' ({noun} {shown}{more})' if count else ''}")


def _base(name: str) -> Path:
    """The folder of a base model: a path, or the name of one in the cache."""
    bases = cache_dir() / "bases"
    folder = next((path for path in (Path(name), bases / name) if path.is_dir()), None)
    if folder is None:
        known = sorted(path.name for path in bases.glob("*")) or ["none yet: run `make setup`"]
        message = f"{name!r} is neither a folder nor a base model in {bases} ({', '.join(known)})."
        raise click.BadParameter(message)
    return folder


def _context(model: Path | None) -> int | None:
    from tunery.data.tokens.tokenizer import BaseUnusable, context_tokens

    try:
        return None if model is None else context_tokens(model)
    except BaseUnusable as error:
        click.echo(f"--model: {error}", err=True)
        sys.exit(UNREADABLE)


def _items(folders: DataDir, names: tuple[str, ...]) -> "list[BenchmarkItem]":
    from tunery.data.screening import benchmarks

    if not names:
        return []
    try:
        chosen = None if "all" in names else names
        return benchmarks.load(benchmarks.folder_in(folders.root), chosen)
    except benchmarks.BenchmarkUnusable as error:
        click.echo(f"Error: --benchmarks: {error}", err=True)
        sys.exit(UNREADABLE)


def _check(
    path: Path,
    check_rows: "Callable[[Path], CheckReport]",
    show: "Callable[[CheckReport, str], None]",
) -> int:
    from tunery.data.screening.operator_models import ModelUnusable
    from tunery.data.tokens.tokenizer import BaseUnusable

    try:
        report = check_rows(path)
    except OSError as error:
        click.echo(f"{path}: {error.strerror}; check the name and its permissions", err=True)
        return UNREADABLE
    except BaseUnusable as error:
        click.echo(f"--model: {error}", err=True)
        return UNREADABLE
    except ModelUnusable as error:
        click.echo(str(error), err=True)
        return UNREADABLE
    show(report, path.name)
    return 0 if report.verdict == "accepted" else REJECTED


def _as_json(report: "CheckReport", name: str) -> None:
    click.echo(msgspec.json.encode(report.summary()))


def _as_text(report: "CheckReport", name: str) -> None:
    from tunery.data.reports.terminal import render_report

    _api.screen().print(render_report(report, name))


def _as_page(out: Path, report: "CheckReport", name: str) -> None:
    from tunery.data.reports.html_page import render_page

    try:
        out.write_text(render_page(report, name), encoding="utf-8")
    except OSError as error:
        raise click.ClickException(f"--html {out}: {error.strerror}") from error
    click.echo(f"{report.verdict}  {name}: see {out}")
