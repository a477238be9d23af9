"""Declarations of measures; each wrong one is refused with its path."""

from typing import Any

import pytest

from tunery.graders.grader import GraderRefused, StringCheck
from tunery.measures.declaration import (
    MEASURES_MAX,
    NAMES,
    PATTERN_MAX,
    Pattern,
    matches,
    parse_measures,
)

SAME = {
    "type": "string_check",
    "operation": "eq",
    "input": "{{sample.output_text}}",
    "reference": "{{item.reference}}",
}
MODEL = {"type": "score_model", "model": "m", "input": [{"role": "user", "content": "?"}]}


def test_names_patterns_and_graders_are_read_in_their_order() -> None:
    regex = {"type": "regex", "pattern": r"^\d+$"}
    assert len(NAMES) >= MEASURES_MAX
    measures = parse_measures(["token_f1", regex, SAME])
    assert [measure.kind for measure in measures] == ["token_f1", "regex", "string_check"]
    assert measures[1].rule == Pattern(r"^\d+$")
    assert isinstance(measures[2].rule, StringCheck)


@pytest.mark.parametrize(
    ("declarations", "param", "words"),
    [
        ("token_f1", "m", "list of 1 to"),
        ([], "m", "list of 1 to"),
        (["exact_match"] * (MEASURES_MAX + 1), "m", "list of 1 to"),
        (["meteor"], "m.0", "must be one of exact_match"),
        (["accuracy", 7], "m.1", "must be an object"),
        ([{"type": "regex", "pattern": "("}], "m.0.pattern", "missing )"),
        ([{"type": "regex", "pattern": r"(a)\1"}], "m.0.pattern", "no back-references"),
        ([{"type": "regex", "pattern": "x" * (PATTERN_MAX + 1)}], "m.0.pattern", "1 to"),
        ([{"type": "regex", "patern": "x"}], "m.0.patern", "not a field"),
        ([{**SAME, "operation": "same"}], "m.0.operation", "must be one of eq"),
        ([{"type": "python", "source": "1"}], "m.0.type", "never run"),
        ([MODEL], "m.0", "no measure"),
    ],
)
def test_a_wrong_declaration_is_refused_at_its_place(
    declarations: Any, param: str, words: str
) -> None:
    with pytest.raises(GraderRefused) as refused:
        parse_measures(declarations, "m")
    assert refused.value.param == param
    assert words in refused.value.problem


def test_a_pattern_that_ruins_other_engines_is_fast() -> None:
    """`(a+)+$` takes Python's `re` longer than the age of the universe for this text."""
    assert not matches("^(a+)+$", "a" * 5_000 + "!")
    assert matches("^(a+)+$", "a" * 5_000)
