"""`tunery grader`: checks and tries the graders of a reinforcement job. Needs no server."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tunery.cli import _api, _options
from tunery.local.errors import LocalError

if TYPE_CHECKING:
    from tunery.graders.grader import Grader

EPILOG = """\
\b
Examples:
  tunery grader validate grader.json
  tunery grader run grader.json --item '{"answer": "Paris"}' --sample 'It is Paris.'
"""
FILE = click.Path(path_type=Path, exists=True, dir_okay=False)


@click.group("grader", cls=_options.ExampleGroup, epilog=EPILOG)
def command() -> None:
    """Check and try graders: what an answer is worth in a reinforcement job."""


@command.command("validate")
@click.argument("file", type=FILE)
@_options.as_json
def validate(file: Path, as_json: bool) -> None:
    """Check the grader in FILE, a JSON object as OpenAI has it."""
    grader = _grader(file)
    shown = {"name": grader.name, "type": read_object(file)["type"]}
    _api.show_one(shown, as_json, list(shown.items()))


@command.command("run")
@click.argument("file", type=FILE)
@click.option("--item", default="{}", help="The row that the sample answers, as JSON.")
@click.option("--sample", required=True, help="What a model wrote.")
@_options.as_json
def run(file: Path, item: str, sample: str, as_json: bool) -> None:
    """Grade one sample with the grader in FILE."""
    from tunery.graders.grading import grade

    result = grade(_grader(file), _object(item, "--item"), sample)
    shown = {"reward": result.reward, "scores": result.scores, "errors": result.errors}
    rows: list[tuple[str, object]] = [("reward", f"{result.reward:.4f}")]
    rows += [(f"  {name}", f"{score:.4f}") for name, score in result.scores.items()]
    _api.show_one(shown, as_json, [*rows, *result.errors.items()])


def _grader(file: Path) -> "Grader":
    """Raises LocalError with where the declaration is wrong."""
    from tunery.graders.grader import GraderRefused, parse

    try:
        return parse(read_object(file))
    except GraderRefused as error:
        raise LocalError(f"{file}: {error}", "Correct it there.") from None


def read_object(file: Path) -> dict[str, Any]:
    """The JSON object in a file. Raises LocalError for another content."""
    return _object(file.read_text("utf-8"), str(file))


def _object(text: str, where: str) -> dict[str, Any]:
    """Raises LocalError for a text that is no JSON object."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise LocalError(f"{where} is not JSON: {error}", "Correct it there.") from None
    if not isinstance(value, dict):
        raise LocalError(f"{where} is no JSON object", "Write it in braces.")
    return value
