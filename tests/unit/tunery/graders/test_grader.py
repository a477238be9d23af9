"""Declarations of graders: OpenAI's examples are taken, what is wrong is named by its place."""

from typing import Any

import pytest

from tunery.graders.grader import GraderRefused, parse

CHECK: dict[str, Any] = {
    "type": "string_check",
    "name": "city",
    "operation": "eq",
    "input": "{{sample.output_text}}",
    "reference": "{{item.answer}}",
}
ALIKE: dict[str, Any] = {
    "type": "text_similarity",
    "name": "alike",
    "evaluation_metric": "fuzzy_match",
    "input": "{{sample.output_text}}",
    "reference": "{{item.answer}}",
}
SCORE: dict[str, Any] = {
    "type": "score_model",
    "name": "judge",
    "model": "judge-1",
    "input": [{"role": "user", "content": "Rate 0 to 5: {{sample.output_text}}"}],
    "range": [0, 5],
    "sampling_params": {"temperature": 0, "max_completions_tokens": 16},
}
MULTI: dict[str, Any] = {
    "type": "multi",
    "name": "both",
    "graders": {"city": CHECK, "alike": ALIKE},
    "calculate_output": "0.5 * city + 0.5 * alike",
}


@pytest.mark.parametrize("declaration", [CHECK, ALIKE, SCORE, MULTI])
def test_graders_are_read(declaration: dict[str, Any]) -> None:
    assert parse(declaration).name == declaration["name"]


@pytest.mark.parametrize(
    ("declaration", "param", "said"),
    [
        ([], "", "must be an object"),
        ({}, "type", "must be one of string_check"),
        ({"type": "python", "source": "x"}, "type", "code of tenants is never run"),
        ({"type": "label_model"}, "type", "use score_model"),
        ({**CHECK, "operation": "regex"}, "operation", "eq, ne, like, ilike"),
        ({**CHECK, "input": 3}, "input", "must be a text"),
        ({**CHECK, "reference": "{{answer}}"}, "reference", "is no variable"),
        ({**CHECK, "refrence": "x"}, "refrence", "is not a field"),
        ({**CHECK, "name": ""}, "name", "1 to 64 characters"),
        ({**ALIKE, "evaluation_metric": "meteor"}, "evaluation_metric", "nearest is rouge_l"),
        ({**ALIKE, "evaluation_metric": "cosine"}, "evaluation_metric", "nearest is fuzzy_match"),
        ({**ALIKE, "evaluation_metric": ["bleu"]}, "evaluation_metric", "must be one of"),
        ({**SCORE, "range": [5, 0]}, "range", "lowest and the highest"),
        ({**SCORE, "input": []}, "input", "1 to 16 messages"),
        ({**SCORE, "input": [{"role": "tool", "content": ""}]}, "input[0].role", "must be one of"),
        ({**SCORE, "sampling_params": {"heat": 1}}, "sampling_params.heat", "is not a field"),
        ({**MULTI, "graders": {}}, "graders", "1 to 16 graders"),
        ({**MULTI, "graders": {"a b": CHECK}}, "graders", "no name that a formula can have"),
        ({**MULTI, "graders": {"city": MULTI}}, "graders.city", "no other in it"),
        ({**MULTI, "graders": {"city": {"type": "python"}}}, "graders.city.type", "never run"),
        ({**MULTI, "calculate_output": "town"}, "calculate_output", "is no grader of it"),
    ],
)
def test_what_is_wrong_is_named_by_its_place(declaration: Any, param: str, said: str) -> None:
    with pytest.raises(GraderRefused) as refusal:
        parse(declaration)
    assert (refusal.value.param, said in refusal.value.problem) == (param, True)
