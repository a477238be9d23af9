"""Recipes in files: read, changed by options, checked with the line of each problem, written."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from tunery.cli import _api
from tunery.cli._yaml import TextPosition, YamlDocument, YamlProblem, read_yaml, write_yaml
from tunery.plan.methods import ROWS_OF_METHOD

if TYPE_CHECKING:
    from services.gateway.jobs.domain.requested import RequestProblem

FILE_FIELDS: Final = ("training_file", "validation_file")
NOWHERE: Final = TextPosition(0, 0)  # of a field that an option gave, or that is missing
#: groups in which a hyper-parameter may be given; the last one that was wins
GROUPS: Final = (
    ("training",),
    ("lora",),
    *(("method", method, "hyperparameters") for method in ROWS_OF_METHOD),
)


class RecipeError(click.ClickException):
    """A recipe that cannot be used: a line for each problem, with its position."""

    exit_code = 2


def read_recipe(path: Path) -> YamlDocument:
    """Read a recipe. Its local files are named from its folder. Raises RecipeError."""
    try:
        document = read_yaml(path.read_text(encoding="utf-8"))
    except YamlProblem as problem:
        line, column = problem.position
        raise RecipeError(f"{path}:{line}:{column}: {problem.message}") from None
    except UnicodeDecodeError as error:
        raise RecipeError(f"{path}: is not text in UTF-8: byte {error.start}") from None
    except OSError as error:
        raise RecipeError(f"{path}: {error.strerror}") from None
    document.value = from_folder(document.value, path.parent)
    return document


def from_folder(recipe: dict[str, Any], folder: Path) -> dict[str, Any]:
    """A recipe whose local files are named from a folder."""
    files = {
        name: str(folder / named)
        for name in FILE_FIELDS
        if isinstance(named := recipe.get(name), str) and not _api.is_uploaded(named)
    }
    return with_mixture(
        recipe | files, lambda named: named if _api.is_uploaded(named) else str(folder / named)
    )


def with_mixture(recipe: dict[str, Any], change: Callable[[str], str]) -> dict[str, Any]:
    """A recipe with other names of the further files that it trains on."""
    training = recipe.get("training")
    mixture = training.get("mixture") if isinstance(training, dict) else None
    if not isinstance(training, dict) or not isinstance(mixture, list):
        return recipe
    files = [
        {**item, "file": change(item["file"])}
        if isinstance(item, dict) and isinstance(item.get("file"), str)
        else item
        for item in mixture
    ]
    return {**recipe, "training": {**training, "mixture": files}}


def without_mixture(recipe: dict[str, Any]) -> dict[str, Any]:
    """A recipe without the further files that it trains on."""
    training = recipe.get("training")
    if not isinstance(training, dict):
        return recipe
    return {**recipe, "training": {n: v for n, v in training.items() if n != "mixture"}}


def put(recipe: dict[str, Any], path: str, value: Any) -> None:
    """Set a field by its path, such as `lora.rank`, wherever the recipe has it so far."""
    *groups, name = path.split(".")
    if tuple(groups) in GROUPS:
        for other in GROUPS:
            _inside(recipe, other).pop(name, None)
    target = recipe
    for group in groups:
        inner = target.get(group)
        target[group] = inner if isinstance(inner, dict) else {}
        target = target[group]
    target[name] = value


def _inside(recipe: Mapping[str, Any], groups: tuple[str, ...]) -> dict[str, Any]:
    inner: Any = recipe
    for group in groups:
        inner = inner.get(group) if isinstance(inner, dict) else None
    return inner if isinstance(inner, dict) else {}


def check_recipe(recipe: Mapping[str, Any], path: Path, document: YamlDocument) -> None:
    """Raises RecipeError with all problems of a recipe, each with the position of its field."""
    from services.gateway.jobs.recipes import recipe_problems

    refuse(recipe_problems(recipe), path, document)


def refuse(problems: "Sequence[RequestProblem]", path: Path, document: YamlDocument) -> None:
    """Raises RecipeError where there are problems, each with the line and column of its field."""
    if not problems:
        return
    lines = [
        f"{_named(path, position)}: {param}: {message}"
        for position, param, message in sorted(
            (_position(document, problem.param), problem.param, problem.message)
            for problem in problems
        )
    ]
    raise RecipeError("\n  ".join([f"{len(lines)} problems", *lines] if lines[1:] else lines))


def _position(document: YamlDocument, param: str) -> TextPosition:
    """The position of a field, or of the group that it is missing in."""
    while param and param not in document.positions:
        param = param.rpartition(".")[0]
    return document.positions.get(param, NOWHERE)


def _named(path: Path, position: TextPosition) -> str:
    return str(path) if position == NOWHERE else f"{path}:{position.line}:{position.column}"


def as_text(recipe: Mapping[str, Any]) -> str:
    """A recipe as the text of a file."""
    return write_yaml(recipe)
