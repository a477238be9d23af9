"""Formulas of multi graders: arithmetic, and nothing else."""

import pytest

from tunery.graders.formula import CHARACTERS_MAX, FormulaError, parse_formula


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a", 0.5),
        ("0.75 * a + 0.25 * b", 0.625),
        ("(a + b) / 2", 0.75),
        ("-a + 2", 1.5),
        ("a ^ 2", 0.25),
        ("1 + a ^ 2 * 4", 2),  # a power binds closest
        ("max(a, b, 0.2)", 1),
        ("min(a, b) + abs(-3) + floor(1.5) + ceil(1.5)", 6.5),
        ("sqrt(a * 2) + log(exp(1))", 2),
    ],
)
def test_a_formula_has_its_value(text: str, value: float) -> None:
    assert parse_formula(text, {"a", "b"}).value({"a": 0.5, "b": 1.0}) == pytest.approx(value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("c", "'c' is no grader of it; those are a, b"),
        ("__import__('os')", "is not taken"),
        ("a.__class__", "is not taken"),
        ("(lambda: 1)()", "is not taken"),
        ("[a for a in a]", "is not taken"),
        ("'text'", "is not taken"),
        ("True", "is not taken"),
        ("a if b else 1", "is not taken"),
        ("a // b", "is not taken"),
        ("min(a)", "min takes at least 2 arguments, not 1"),
        ("sqrt(a, b)", "sqrt takes 1 arguments, not 2"),
        ("max(*a)", "without *"),
        ("a +", "no arithmetic expression"),
        ("", "no arithmetic expression"),
        ("(" * 240 + "a" + ")" * 240, "no arithmetic expression"),
        ("a+" * 149 + "a", "more than 200 parts"),
        ("a" * (CHARACTERS_MAX + 1), "at most are read"),
    ],
)
def test_anything_else_is_refused_by_name(text: str, said: str) -> None:
    with pytest.raises(FormulaError) as refusal:
        parse_formula(text, {"a", "b"})
    assert said in str(refusal.value)


@pytest.mark.parametrize(
    "text", ["1 / a", "log(a)", "sqrt(-1)", "(-1) ^ 0.5", "9 ^ 9 ^ 9 ^ 9", "exp(1000)", "1e999 * 1"]
)
def test_a_formula_without_a_value_says_so(text: str) -> None:
    with pytest.raises(FormulaError, match="value here"):
        parse_formula(text, {"a"}).value({"a": 0.0})
