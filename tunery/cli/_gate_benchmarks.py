"""`tunery gate import`, `tunery gate benchmarks` and `tunery gate remove`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tunery.cli import _api

if TYPE_CHECKING:
    from tunery.client import Api

FORMATS = (
    "mmlu",
    "hellaswag",
    "arc",
    "truthfulqa",
    "truthfulqa_mc2",
    "gsm8k",
    "xstest",
    "choices",
)


@click.command("import")
@click.argument("format_name", metavar="FORMAT", type=click.Choice(FORMATS))
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True))
@click.option(
    "--examples",
    multiple=True,
    type=click.Path(path_type=Path, exists=True),
    help="File of the rows that are shown with their answers; can be given several times.",
)
@click.option("--shots", type=click.IntRange(0, 50), help="Examples before each item. [as usual]")
@click.option("--name", help="Its name in jobs and policies. [FORMAT]")
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the benchmark into a file, and add it to no service.",
)
@_api.asking
def import_benchmark(
    api: "Api",
    format_name: str,
    files: tuple[Path, ...],
    examples: tuple[Path, ...],
    shots: int | None,
    name: str | None,
    output: Path | None,
    as_json: bool,
) -> None:
    """Import FILES, published as FORMAT, as a benchmark that the gate asks where it is named.

    FORMAT is mmlu, hellaswag, arc, truthfulqa (MC1), truthfulqa_mc2, gsm8k, xstest, or choices:
    rows of your own with question, choices and answer. FILES are JSON lines, JSON, CSV or Parquet;
    a folder stands for all files in it. Texts and examples are those of lm-evaluation-harness; the
    examples are the first rows of their file. The same files give the same bytes; verdicts have
    their hash.
    """
    from tunery.benchmarks.task import TaskUnusable
    from tunery.data.importing.formats import import_task

    try:
        content = import_task(format_name, _files(files), _files(examples), shots)
        if output is not None:
            output.write_bytes(content)
    except (TaskUnusable, OSError) as error:
        raise click.ClickException(str(error)) from error
    if output is not None:
        _api.show_one({"file": str(output)}, as_json, [("file", str(output))])
        return
    added = api.write("PUT", "gate", "benchmarks", name or format_name, content=content)
    fields = ("id", "task", "kind", "items", "shots", "sha256")
    _api.show_one(added, as_json, [(field, added[field]) for field in fields])


@click.command("benchmarks")
@_api.listed(
    {
        "name": "id",
        "task": "task",
        "kind": "kind",
        "items": lambda entry: f"{entry['items']:,}",
        "shots": "shots",
        "hash": lambda entry: entry["sha256"][:12],
    }
)
def list_benchmarks(api: "Api") -> Any:
    """List the benchmarks that jobs and policies may name."""
    return api.get("gate", "benchmarks")["data"]


@click.command("remove")
@click.argument("name")
@_api.removed("removed")
def remove_benchmark(api: "Api", name: str) -> str:
    """Remove the benchmark NAME, which no policy may name any more.

    Jobs that were submitted still ask it, and verdicts keep its hash.
    """
    api.write("DELETE", "gate", "benchmarks", name)
    return name


def _files(paths: tuple[Path, ...]) -> list[Path]:
    """Files in the order of their names; a folder stands for those in it."""
    return [
        file
        for path in paths
        for file in (sorted(path.iterdir()) if path.is_dir() else (path,))
        if file.is_file() and not file.name.startswith(".")
    ]
