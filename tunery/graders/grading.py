"""Reward of one sample: for any text of a model a number or a named error."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import msgspec

from tunery.graders.formula import FormulaError
from tunery.graders.grader import (
    Grader,
    Multi,
    ScoreMessage,
    ScoreModel,
    Single,
    StringCheck,
    TextSimilarity,
    parts_of,
)
from tunery.graders.similarity import similarity
from tunery.graders.templates import RenderedTemplate, VariableUnknown, render

# OpenAI's names of what may go wrong.
VARIABLE_ERROR: Final = "invalid_variable_error"
FORMULA_ERROR: Final = "formula_parse_error"
CUT: Final = "truncated_observation_error"
ENDPOINT_ERROR: Final = "model_grader_server_error"
PARSE_ERROR: Final = "model_grader_parse_error"
REFUSAL_ERROR: Final = "model_grader_refusal_error"

# Asks a model for a score of messages. Raises `ScoreUnavailable`.
Ask: TypeAlias = Callable[[ScoreModel, tuple[ScoreMessage, ...]], float]
# A model that scores, and its messages with their variables replaced.
Question: TypeAlias = tuple[ScoreModel, tuple[ScoreMessage, ...]]


class ScoreUnavailable(Exception):
    """A scoring model gave no score.

    name: OpenAI's, of the error
    """

    def __init__(self, problem: str, name: str = ENDPOINT_ERROR) -> None:
        super().__init__(problem)
        self.name = name


@dataclass(frozen=True)
class Grade:
    """Reward of a sample, with the scores that it is computed from."""

    reward: float  # 0 where an error leaves no number
    scores: Mapping[str, float]  # score of each part, by name
    errors: Mapping[str, str]  # OpenAI's error names, each with what happened


def grade(grader: Grader, item: Any, output_text: str, ask: Ask | None = None) -> Grade:
    """Grade a sample.

    item: the row that it answers
    output_text: what the model wrote
    ask: None: there is no endpoint for models that score
    """
    values = {"item": item, "sample": _sample(grader, output_text)}
    scores: dict[str, float] = {}
    errors: dict[str, str] = {}
    named = grader.graders if isinstance(grader, Multi) else {grader.name: grader}
    for name, part in named.items():
        try:
            scores[name] = _score(part, values, errors, ask)
        except VariableUnknown as error:
            errors[VARIABLE_ERROR] = f"the row has no {error.args[0]}"
        except ScoreUnavailable as error:
            errors[error.name] = str(error)
    if scores.keys() != named.keys():
        return Grade(0.0, scores, errors)
    try:
        reward = (
            grader.formula().value(scores) if isinstance(grader, Multi) else scores[grader.name]
        )
    except FormulaError as error:
        return Grade(0.0, scores, {**errors, FORMULA_ERROR: str(error)})
    return Grade(reward, scores, errors)


def questions_of(grader: Grader, item: Any, output_text: str) -> list[Question]:
    """Return the questions of a grader to models about a sample."""
    questions: list[Question] = []

    def note(part: ScoreModel, messages: tuple[ScoreMessage, ...]) -> float:
        questions.append((part, messages))
        return 0.0

    grade(grader, item, output_text, note)
    return questions


def _score(
    part: Single, values: Mapping[str, Any], errors: dict[str, str], ask: Ask | None
) -> float:
    def rendered(template: str) -> str:
        text: RenderedTemplate = render(template, values)
        if text.cut:
            errors[CUT] = f"a text of {part.name} was cut at {len(text.text)} characters"
        return text.text

    match part:
        case StringCheck(operation=operation, input=text, reference=reference):
            return float(_relates(operation, rendered(text), rendered(reference)))
        case TextSimilarity(evaluation_metric=measure, input=text, reference=reference):
            return similarity(measure, rendered(text), rendered(reference))
        case ScoreModel(input=messages, range=(low, high)):
            if ask is None:
                raise ScoreUnavailable("no endpoint for models that score is configured")
            said = ask(part, tuple(ScoreMessage(m.role, rendered(m.content)) for m in messages))
            return min(max(said, low), high)


def _relates(operation: str, text: str, reference: str) -> bool:
    match operation:
        case "eq":
            return text == reference
        case "ne":
            return text != reference
        case "like":
            return reference in text
        case _:
            return reference.casefold() in text.casefold()


def _sample(grader: Grader, output_text: str) -> dict[str, Any]:
    """The variables of a sample; `output_json` only where a template names it and it is JSON."""
    sample: dict[str, Any] = {"output_text": output_text}
    if any("output_json" in text for part in parts_of(grader) for text in _templates(part)):
        with suppress(msgspec.DecodeError, RecursionError):
            sample["output_json"] = msgspec.json.decode(output_text)
    return sample


def _templates(part: Single) -> tuple[str, ...]:
    if isinstance(part, ScoreModel):
        return tuple(message.content for message in part.input)
    return (part.input, part.reference)
