"""Texts among the settings of a job: what follows from their declaration. Pure."""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Final, NamedTuple, TypeVar, cast, get_args, get_origin

import msgspec
from msgspec import inspect
from pydantic import BaseModel, Field

from schemas.sealed import REDACTED, Sealed, SealedField
from schemas.submission import JobSettings
from services.gateway.web.domain.responses import Unseal, with_fields

CONSTRAINTS: Final = ("min_length", "max_length", "pattern", "ge", "le", "description")
Model = TypeVar("Model", bound=BaseModel)


class Text(NamedTuple):
    """A text as it is declared, see `schemas.submission.text`."""

    path: str
    form: Any
    answer: str
    filters: bool


def _declared() -> dict[str, Text]:
    settings = cast("inspect.StructType", inspect.type_info(JobSettings))
    return {
        field.name: Text(**(field.type.extra or {}))
        for field in settings.fields
        if isinstance(field.type, inspect.Metadata)
    }


TEXTS: Final[Mapping[str, Text]] = _declared()
FILTERS: Final = tuple(name for name, text in TEXTS.items() if text.filters)


def with_texts(model: type[Model]) -> type[Model]:
    """Add the texts that a body or an answer has at its top and does not declare itself."""
    missing: dict[str, Any] = {
        name: (_checked(text.form) | None, None)
        for name, text in TEXTS.items()
        if not {name, text.answer} & {*model.model_fields} and "." not in text.path
    }
    return with_fields(**missing)(model)


def _checked(form: Any) -> Any:
    """The type for pydantic, with the constraints of msgspec's."""
    if get_origin(form) is not Annotated:
        parts = tuple(_checked(part) for part in get_args(form))
        return get_origin(form)[parts] if parts else form
    kind, meta = get_args(form)
    limits = {name: getattr(meta, name) for name in CONSTRAINTS}
    constraints = {name: limit for name, limit in limits.items() if limit is not None}
    return Annotated[_checked(kind), Field(strict=True, **constraints)]


def sealed_texts(request: BaseModel, seal: Callable[[str, SealedField], Sealed]) -> dict[str, Any]:
    """Every text of a request, sealed, by the names of the fields of `JobSettings`."""
    return {
        name: seal(as_text(value), cast("SealedField", name))
        for name in TEXTS
        if (value := value_of(request, name)) not in (None, [])
    }


def value_of(request: BaseModel, name: str) -> Any:
    """The value of a text in a request; None: it has none."""
    value: Any = request
    for part in TEXTS[name].path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else getattr(value, part, None)
    return value


def put(recipe: dict[str, Any], name: str, value: Any) -> None:
    """Write the value of a text to its place in a recipe."""
    *groups, last = TEXTS[name].path.split(".")
    for group in groups:
        recipe = recipe.setdefault(group, {})
    recipe[last] = value


def as_text(value: Any) -> str:
    """A string as it is, everything else as canonical JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value, order="sorted").decode()


def text_of(settings: JobSettings, name: str, unseal: Unseal) -> Any:
    """The value of a text; None if the job has none, or its tenant was erased."""
    sealed = getattr(settings, name)
    opened = unseal(sealed, cast("SealedField", name))
    if opened is None or TEXTS[name].form is str:
        return opened
    try:
        return None if opened == REDACTED else msgspec.json.decode(opened)
    except msgspec.DecodeError:
        return None


def texts_of(settings: JobSettings, unseal: Unseal) -> dict[str, Any]:
    """The value of each text by its name, see `text_of`."""
    return {name: text_of(settings, name, unseal) for name in TEXTS}


def at_top(texts: Mapping[str, Any]) -> dict[str, Any]:
    return {
        text.answer or name: texts[name] for name, text in TEXTS.items() if "." not in text.path
    }


def has_all(settings: JobSettings, wanted: Mapping[str, Sequence[str]], unseal: Unseal) -> bool:
    """True if each of these texts, which are lists of words, has all of its values."""
    return all(
        {*values} <= {*(text_of(settings, name, unseal) or ())} for name, values in wanted.items()
    )
