"""`tunery benchmarks`: evaluation sets that training data must not contain."""

from pathlib import Path

import click

from tunery.cli import _api, _options
from tunery.local.paths import DataDir

EPILOG = """\
\b
Examples:
  tunery benchmarks add gsm8k gsm8k_test.jsonl
  tunery benchmarks add mmlu mmlu_test.jsonl.gz mmlu_validation.jsonl.gz
  tunery benchmarks add ours exam.csv --question stem --answer key
  tunery benchmarks list
  tunery benchmarks remove gsm8k
"""


@click.group("benchmarks", cls=_options.ExampleGroup, epilog=EPILOG)
def command() -> None:
    """Manage benchmarks that training data must not contain."""


@command.command("add")
@click.argument("name")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True))
@click.option("--question", metavar="KEY", help="Key of the question, if it has an unusual name.")
@click.option("--answer", metavar="KEY", help="Key of the answer, if it has an unusual name.")
@_options.data_dir
@_options.as_json
def add(
    name: str,
    files: tuple[Path, ...],
    question: str | None,
    answer: str | None,
    folders: DataDir,
    as_json: bool,
) -> None:
    """Store the items of FILES as benchmark NAME. Training data is compared with them from now on.

    Files are JSON lines, a JSON array, CSV or Parquet, also compressed. Question and answer are
    recognised by the names that MMLU, ARC, HellaSwag, TruthfulQA, GSM8K, HumanEval and others use.
    """
    from tunery.data.screening import benchmarks

    try:
        header = benchmarks.add(
            benchmarks.folder_in(folders.root), name, files, question=question, answer=answer
        )
    except (benchmarks.BenchmarkUnusable, OSError) as error:
        raise click.ClickException(str(error)) from error
    pairs = [("name", header.name), ("items", header.items), ("files", len(header.sources))]
    _api.show_one(dict(pairs), as_json, pairs)


@command.command("list")
@_options.data_dir
@_options.as_json
def list_benchmarks(folders: DataDir, as_json: bool) -> None:
    """List benchmarks, their items and files."""
    from tunery.data.screening import benchmarks

    try:
        headers = benchmarks.read_headers(benchmarks.folder_in(folders.root))
    except benchmarks.BenchmarkUnusable as error:
        raise click.ClickException(str(error)) from error
    _api.show(
        [
            {
                "name": header.name,
                "items": header.items,
                "files": [source.file for source in header.sources],
            }
            for header in headers
        ],
        as_json,
        {
            "name": "name",
            "items": lambda entry: f"{entry['items']:,}",
            "files": lambda entry: ", ".join(entry["files"]),
        },
    )


@command.command("remove")
@click.argument("name")
@_options.data_dir
@_options.as_json
def remove(name: str, folders: DataDir, as_json: bool) -> None:
    """Remove benchmark NAME. The files that it was read from are not deleted."""
    from tunery.data.screening import benchmarks

    try:
        benchmarks.remove(benchmarks.folder_in(folders.root), name)
    except benchmarks.BenchmarkUnusable as error:
        raise click.ClickException(str(error)) from error
    _api.show_removed(name, "removed", as_json)
