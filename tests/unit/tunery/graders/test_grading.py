"""The reward of a sample."""

from typing import Any

import pytest

from tests.unit.tunery.graders.test_grader import ALIKE, CHECK, MULTI, SCORE
from tunery.graders.grader import ScoreMessage, ScoreModel, parse
from tunery.graders.grading import (
    CUT,
    ENDPOINT_ERROR,
    FORMULA_ERROR,
    VARIABLE_ERROR,
    ScoreUnavailable,
    grade,
)

ITEM = {"answer": "Paris"}


@pytest.mark.parametrize(
    ("operation", "sample", "reward"),
    [
        ("eq", "Paris", 1),
        ("eq", "paris", 0),
        ("ne", "Rome", 1),
        ("ne", "Paris", 0),
        ("like", "It is Paris.", 1),
        ("like", "It is PARIS.", 0),
        ("ilike", "It is PARIS.", 1),
        ("ilike", "It is Rome.", 0),
    ],
)
def test_strings_are_compared_as_openai_does(operation: str, sample: str, reward: float) -> None:
    assert grade(parse({**CHECK, "operation": operation}), ITEM, sample).reward == reward


def test_a_multi_grader_computes_with_its_parts() -> None:
    result = grade(parse(MULTI), ITEM, "Pari")
    assert result.scores == {"city": 0, "alike": pytest.approx(8 / 9)}
    assert result.reward == pytest.approx(4 / 9)
    assert not result.errors


@pytest.mark.parametrize(
    ("declaration", "item", "sample", "error"),
    [
        (CHECK, {}, "Paris", VARIABLE_ERROR),
        (CHECK, None, "Paris", VARIABLE_ERROR),
        ({**CHECK, "input": "{{sample.output_json.city}}"}, ITEM, "no JSON", VARIABLE_ERROR),
        ({**MULTI, "calculate_output": "1 / city"}, ITEM, "Rome", FORMULA_ERROR),
        (SCORE, ITEM, "Paris", ENDPOINT_ERROR),
        ({**CHECK, "operation": "ne"}, ITEM, "[" * 100_000, CUT),
    ],
)
def test_an_error_has_openais_name(
    declaration: dict[str, Any], item: Any, sample: str, error: str
) -> None:
    result = grade(parse(declaration), item, sample)
    assert list(result.errors) == [error]
    assert result.reward == (1 if error == CUT else 0)


def test_json_in_a_sample_is_read() -> None:
    checked = parse({**CHECK, "input": "{{sample.output_json.city}}"})
    assert grade(checked, ITEM, '{"city": "Paris"}').reward == 1


def test_a_model_is_asked_with_the_texts_and_kept_in_its_range() -> None:
    asked: list[tuple[ScoreMessage, ...]] = []

    def ask(_model: ScoreModel, messages: tuple[ScoreMessage, ...]) -> float:
        asked.append(messages)
        return 7

    assert grade(parse(SCORE), ITEM, "Paris", ask).reward == 5
    assert asked == [(ScoreMessage("user", "Rate 0 to 5: Paris"),)]

    def fail(_model: ScoreModel, _messages: tuple[ScoreMessage, ...]) -> float:
        raise ScoreUnavailable("it answered 500")

    assert grade(parse(SCORE), ITEM, "Paris", fail).errors == {ENDPOINT_ERROR: "it answered 500"}


def test_names_of_single_graders_are_those_of_their_scores() -> None:
    assert grade(parse(ALIKE), ITEM, "Paris").scores == {"alike": 1}
