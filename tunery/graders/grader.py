"""Declarations of graders, with OpenAI's names; `parse` reads them and refuses what is wrong."""

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias, get_args

from msgspec import Struct

from tunery.graders.formula import Formula, FormulaError, parse_formula
from tunery.graders.similarity import MEASURES
from tunery.graders.templates import template_problem

Operation: TypeAlias = Literal["eq", "ne", "like", "ilike"]
GRADERS_MAX: Final = 16  # of a multi grader
MESSAGES_MAX: Final = 16  # of a model that scores
NAME_MAX: Final = 64
OPERATIONS: Final[tuple[str, ...]] = get_args(Operation)
ROLES: Final = ("user", "assistant", "system", "developer")
TYPES: Final = ("string_check", "text_similarity", "score_model", "multi")
# What OpenAI has and is not built, and the nearest that is.
REFUSED_TYPES: Final[Mapping[str, str]] = {
    "python": "code of tenants is never run; use string_check, text_similarity, or multi with "
    "calculate_output",
    "label_model": "use score_model, which gives a number",
    "endpoint": "use score_model, which asks the model of the operator",
}
REFUSED_MEASURES: Final[Mapping[str, str]] = {
    "meteor": "it needs WordNet, which is English alone; the nearest is rouge_l",
    "cosine": "it needs a model of embeddings; the nearest is fuzzy_match",
}


class GraderRefused(ValueError):
    """A declaration that is refused.

    param: path of the faulty part, as in `graders.name.input`; empty: the whole
    """

    def __init__(self, param: str, problem: str) -> None:
        super().__init__(f"{param}: {problem}" if param else problem)
        self.param, self.problem = param, problem


class StringCheck(Struct, frozen=True):
    """Score 1 if the input relates to the reference by the operation, else 0."""

    name: str
    # `eq`, `ne`: equal or not; `like`: it contains the reference; `ilike`: in any case
    operation: Operation
    # input, reference: templates
    input: str
    reference: str


class TextSimilarity(Struct, frozen=True):
    name: str
    evaluation_metric: str  # one of `similarity.MEASURES`
    # input, reference: templates
    input: str
    reference: str


class ScoreMessage(Struct, frozen=True):
    """A message to a model that scores. `content` is a template."""

    role: str
    content: str


class ScoreModel(Struct, frozen=True):
    """Score that a model gives."""

    name: str
    model: str  # model name at its endpoint
    input: tuple[ScoreMessage, ...]
    range: tuple[float, float] = (0.0, 1.0)  # the lowest and the highest score
    # temperature, seed, top_p, max_completion_tokens: sampling parameters; None: the endpoint's
    # defaults
    temperature: float | None = None
    seed: int | None = None
    top_p: float | None = None
    max_completion_tokens: int | None = None


Single: TypeAlias = StringCheck | TextSimilarity | ScoreModel


class Multi(Struct, frozen=True):
    """Score that is computed from those of other graders."""

    name: str
    graders: dict[str, Single]  # graders by their names in the formula
    calculate_output: str  # the formula

    def formula(self) -> Formula:
        return parse_formula(self.calculate_output, self.graders)


Grader: TypeAlias = Single | Multi


def parts_of(grader: Grader) -> tuple[Single, ...]:
    """The graders that read a sample."""
    return tuple(grader.graders.values()) if isinstance(grader, Multi) else (grader,)


def asks_models(grader: Grader) -> bool:
    """Return whether a model gives one of its scores."""
    return any(isinstance(part, ScoreModel) for part in parts_of(grader))


def parse(declaration: Any, param: str = "") -> Grader:
    """Read OpenAI's declaration of a grader. Raises `GraderRefused` with the first problem."""
    fields = _object(declaration, param)
    kind = str(fields.get("type"))
    if kind in REFUSED_TYPES:
        raise GraderRefused(_at(param, "type"), f"{kind!r} is not built: {REFUSED_TYPES[kind]}")
    match kind:
        case "string_check":
            return _string_check(fields, param)
        case "text_similarity":
            return _text_similarity(fields, param)
        case "score_model":
            return _score_model(fields, param)
        case "multi":
            return _multi(fields, param)
        case _:
            raise GraderRefused(_at(param, "type"), f"must be one of {', '.join(TYPES)}")


def _string_check(fields: Mapping[str, Any], param: str) -> StringCheck:
    _only(fields, param, ("input", "reference", "operation"))
    operation = fields.get("operation")
    if operation not in OPERATIONS:
        raise GraderRefused(_at(param, "operation"), f"must be one of {', '.join(OPERATIONS)}")
    return StringCheck(
        name=_name(fields, param),
        operation=operation,
        input=_template(fields, "input", param),
        reference=_template(fields, "reference", param),
    )


def _text_similarity(fields: Mapping[str, Any], param: str) -> TextSimilarity:
    _only(fields, param, ("input", "reference", "evaluation_metric"))
    measure, where = fields.get("evaluation_metric"), _at(param, "evaluation_metric")
    if not isinstance(measure, str):
        raise GraderRefused(where, f"must be one of {', '.join(MEASURES)}")
    if measure in REFUSED_MEASURES:
        raise GraderRefused(where, f"{measure!r} is not built: {REFUSED_MEASURES[measure]}")
    if measure not in MEASURES:
        raise GraderRefused(where, f"must be one of {', '.join(MEASURES)}")
    return TextSimilarity(
        name=_name(fields, param),
        evaluation_metric=measure,
        input=_template(fields, "input", param),
        reference=_template(fields, "reference", param),
    )


def _score_model(fields: Mapping[str, Any], param: str) -> ScoreModel:
    _only(fields, param, ("model", "input", "range", "sampling_params"))
    model, messages = fields.get("model"), fields.get("input")
    if not isinstance(model, str) or not model:
        raise GraderRefused(_at(param, "model"), "must be the name of a model")
    if not isinstance(messages, list) or not 1 <= len(messages) <= MESSAGES_MAX:
        raise GraderRefused(_at(param, "input"), f"must be 1 to {MESSAGES_MAX} messages")
    sampling_at = _at(param, "sampling_params")
    sampling = _object(fields.get("sampling_params") or {}, sampling_at)
    tokens = sampling.get("max_completions_tokens", sampling.get("max_completion_tokens"))
    names = ("temperature", "seed", "top_p", "max_completions_tokens", "max_completion_tokens")
    _only(sampling, sampling_at, names)
    return ScoreModel(
        name=_name(fields, param),
        model=model,
        input=tuple(
            _message(message, f"{_at(param, 'input')}[{at}]") for at, message in enumerate(messages)
        ),
        range=_range(fields.get("range"), _at(param, "range")),
        temperature=_number(sampling.get("temperature"), _at(sampling_at, "temperature")),
        seed=_whole(sampling.get("seed"), _at(sampling_at, "seed")),
        top_p=_number(sampling.get("top_p"), _at(sampling_at, "top_p")),
        max_completion_tokens=_whole(tokens, _at(sampling_at, "max_completions_tokens")),
    )


def _multi(fields: Mapping[str, Any], param: str) -> Multi:
    _only(fields, param, ("graders", "calculate_output"))
    where = _at(param, "graders")
    declared = _object(fields.get("graders"), where)
    if not 1 <= len(declared) <= GRADERS_MAX:
        raise GraderRefused(where, f"must be 1 to {GRADERS_MAX} graders by name")
    graders: dict[str, Single] = {}
    for name, declaration in declared.items():
        if not name.isidentifier() or len(name) > NAME_MAX:
            raise GraderRefused(where, f"{name[:NAME_MAX]!r} is no name that a formula can have")
        part = parse({"name": name, **_object(declaration, _at(where, name))}, _at(where, name))
        if isinstance(part, Multi):
            raise GraderRefused(_at(where, name), "a multi grader has no other in it")
        graders[name] = part
    text = fields.get("calculate_output")
    if not isinstance(text, str):
        raise GraderRefused(_at(param, "calculate_output"), "must be a formula")
    try:
        parse_formula(text, graders)
    except FormulaError as error:
        raise GraderRefused(_at(param, "calculate_output"), str(error)) from error
    return Multi(name=_name(fields, param), graders=graders, calculate_output=text)


def _message(message: Any, param: str) -> ScoreMessage:
    fields = _object(message, param)
    _only(fields, param, ("role", "content"))
    role, content = fields.get("role"), fields.get("content")
    if role not in ROLES:
        raise GraderRefused(_at(param, "role"), f"must be one of {', '.join(ROLES)}")
    if isinstance(content, dict) and content.get("type") in ("input_text", "output_text"):
        content = content.get("text")
    return ScoreMessage(role, _template({"content": content}, "content", param))


def _template(fields: Mapping[str, Any], name: str, param: str) -> str:
    text = fields.get(name)
    if not isinstance(text, str):
        raise GraderRefused(_at(param, name), "must be a text, which may have variables")
    problem = template_problem(text)
    if problem is not None:
        raise GraderRefused(_at(param, name), problem)
    return text


def _range(value: Any, param: str) -> tuple[float, float]:
    if value is None:
        return (0.0, 1.0)
    numbers = isinstance(value, list) and len(value) == 2 and all(map(_is_number, value))
    if not numbers or value[0] >= value[1]:
        raise GraderRefused(param, "must be the lowest and the highest score")
    return (float(value[0]), float(value[1]))


def _number(value: Any, param: str) -> float | None:
    if value is None or _is_number(value):
        return None if value is None else float(value)
    raise GraderRefused(param, "must be a number")


def _whole(value: Any, param: str) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise GraderRefused(param, "must be a whole number")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e9


def _name(fields: Mapping[str, Any], param: str) -> str:
    name = fields.get("name", fields["type"])
    if not isinstance(name, str) or not 1 <= len(name) <= NAME_MAX:
        raise GraderRefused(_at(param, "name"), f"must be 1 to {NAME_MAX} characters")
    return name


def _object(value: Any, param: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise GraderRefused(param, "must be an object")
    return value


def _only(fields: Mapping[str, Any], param: str, names: tuple[str, ...]) -> None:
    """Raises `GraderRefused` where there is a field of another name: typos cost runs."""
    unknown = next((name for name in fields if name not in (*names, "type", "name")), None)
    if unknown is not None:
        raise GraderRefused(_at(param, str(unknown)[:NAME_MAX]), "is not a field of it")


def _at(param: str, name: str) -> str:
    return f"{param}.{name}" if param else name
