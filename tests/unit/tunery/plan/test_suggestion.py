"""Suggested training for a file, with reasons."""

from typing import Any

import pytest

from tunery.plan.suggestion import Candidate, choose_base, method_for, risks_of

REPORT: dict[str, Any] = {
    "rows": 200,
    "distinct_rows": 200,
    "tokens": {"tokens": 10_000, "trainable_tokens": 4_000},
    "warnings": [],
    "counts": {},
    "not_looked_for": [],
}


def candidate(
    name: str, parameters: int, *, price: int = 1_000_000, refusal: str | None = None, **more: int
) -> Candidate:
    estimate = {"amount_micro": price, "amount_max_micro": price, "currency": "EUR", "steps": 100}
    refusals = [] if refusal is None else [{"message": refusal}]
    plan = {"estimate": estimate | more, "refusals": refusals}
    return Candidate(name, parameters, plan)


@pytest.mark.parametrize(
    ("dialect", "method"),
    [
        ("chat", "supervised"),
        ("alpaca", "supervised"),
        ("dpo", "dpo"),
        ("kto", "kto"),
        ("prompts", "reinforcement"),
    ],
)
def test_the_method_follows_from_the_rows(dialect: str, method: str) -> None:
    assert method_for(dialect)[0] == method


def test_the_largest_base_that_nodes_can_train_is_chosen() -> None:
    refused = Candidate("unknown", 9, None, "The model 'unknown' does not exist.")
    choice = choose_base(
        [
            candidate("small", 1),
            candidate("huge", 70, refusal="No node has the memory."),
            candidate("large", 7),
            refused,
        ]
    )
    assert choice.chosen is not None
    assert (choice.chosen.base_id, choice.why) == (
        "large",
        "the largest of 4 registered that nodes here can train",
    )
    assert choice.others == {
        "huge": "No node has the memory.",
        "unknown": "The model 'unknown' does not exist.",
        "small": "smaller than large",
    }


def test_a_budget_leaves_out_what_costs_more() -> None:
    bases = [candidate("large", 7, price=20_000_000), candidate("small", 1, price=2_000_000)]
    choice = choose_base(bases, 5_000_000)
    assert choice.chosen is not None
    assert choice.chosen.base_id == "small"
    assert choice.others == {"large": "about 20.00 EUR, above the budget"}
    too_dear = choose_base(bases, 0)
    assert (too_dear.chosen, set(too_dear.others)) == (None, {"large", "small"})


def test_good_rows_and_a_large_base_have_no_risk() -> None:
    assert risks_of(REPORT, candidate("large", 7_000_000_000), "supervised") == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rows": 12, "distinct_rows": 12}, "12 rows teach a form at most"),
        ({"distinct_rows": 100}, "100 of 200 rows repeat others"),
        ({"tokens": {"tokens": 10_000, "trainable_tokens": 100}}, "1.0% of the tokens are answers"),
        ({"not_looked_for": ["personal data"]}, "not looked for: personal data"),
        (
            {
                "warnings": [
                    {"row": 3, "code": "long_row", "message": "It is long", "hint": "Cut it."},
                    {"row": 9, "code": "long_row", "message": "It is long", "hint": "Cut it."},
                ],
                "counts": {"long_row": 7},
            },
            "row 3: It is long (long_row, 7)",
        ),
    ],
)
def test_each_risk_of_the_rows_is_named(change: dict[str, Any], words: str) -> None:
    ((risk, fix),) = risks_of(REPORT | change, None, "supervised")
    assert (risk, bool(fix)) == (words, True)


def test_each_risk_of_the_plan_is_named() -> None:
    base = candidate("tiny", 135_000_000, steps=20, amount_max_micro=9_000_000)
    risks = [risk for risk, _ in risks_of(REPORT, base, "reinforcement")]
    assert risks == [
        "tiny has 135 M parameters",
        "20 steps may not be enough to learn from",
        "up to 9.00 EUR are held",
        "answers are only as good as the grader",
    ]
