"""Suggestions follow from facts: one row of the table for each fact."""

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from schemas.reasons import VerdictCode, judging
from schemas.training import TrainingFacts
from services.eval.domain.suggestions import suggest
from services.eval.domain.verdict import summarise
from tests.unit.services.eval.samples import holdout, item, measured, scores
from tunery.work.scores import MeasuredRow

USUAL = TrainingFacts(
    learning_rate_ppb=200_000, epochs=3, steps=300, rows=900, final_loss_ppm=950_000
)
ROWS = [measured(number, 0.5, 0.5) for number in range(40)]


def codes(
    reason: VerdictCode,
    training: TrainingFacts | None = USUAL,
    rows: Sequence[MeasuredRow] = (),
    losses: tuple[float | None, float | None] = (2.0, 1.0),
) -> list[str]:
    judged = replace(scores((), holdout(*losses)), rows=tuple(rows))
    return [reason.code for reason in suggest(judged, [judging(reason)], (), training)]


@pytest.mark.parametrize(
    ("reason", "changes", "losses", "expected"),
    [
        ("drop_shown", {}, (2.0, 1.0), ["learning_rate_lower"]),
        ("scores_not_finite", {}, (None, None), ["learning_rate_lower"]),
        ("drop_excluded", {}, (2.0, 1.0), []),
        ("gain_below", {}, (2.0, 1.0), []),
        ("gain_below", {}, (2.0, 1.99), ["learning_rate_higher", "epochs_fewer"]),
        ("gain_below", {"steps": 20, "epochs": 1}, (2.0, 2.0), ["epochs_more"]),
        ("gain_below", {"final_loss_ppm": 100_000}, (2.0, 1.0), ["epochs_fewer"]),
        ("gain_below", {"final_loss_ppm": 100_000, "epochs": 1}, (2.0, 1.0), []),
        ("gain_below", {"final_loss_ppm": None}, (2.0, 1.0), []),
        ("gain_below", {"rows": 49}, (2.0, 1.0), ["rows_more"]),
    ],
)
def test_facts_of_the_training(
    reason: VerdictCode,
    changes: dict[str, Any],
    losses: tuple[float | None, float | None],
    expected: list[str],
) -> None:
    assert codes(reason, replace(USUAL, **changes), losses=losses) == expected


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ([], []),
        ([{"group": "0"}] * 5, ["duplicates_remove"]),
        ([{"group": "0"}] * 4, []),
        ([{"adapter_cut": True}] * 4, ["answers_shorten"]),
        ([{"adapter_cut": True}] * 3, []),
        ([{"reference": "the second"}] * 8, ["classes_balance"]),
        ([{"reference": "the second"}] * 9, []),
        ([{"reference": f"text {number}"} for number in range(40)], []),
    ],
)
def test_facts_of_the_rows(changed: list[dict[str, Any]], expected: list[str]) -> None:
    rows = [replace(row, **changes) for row, changes in zip(ROWS, changed, strict=False)]
    assert codes("measure_below", rows=[*rows, *ROWS[len(changed) :]]) == expected


def test_figures_are_those_that_were_measured() -> None:
    (lower,) = suggest(scores((), holdout()), [judging("drop_shown")], (), USUAL)
    assert dict(lower.params) == {"learning_rate_ppb": 200_000, "to_ppb": 100_000}


def test_without_facts_of_the_training_the_rows_speak() -> None:
    cut = [replace(row, adapter_cut=True) for row in ROWS]
    assert codes("drop_shown", None, cut) == ["answers_shorten"]


def test_a_summary_has_suggestions_where_it_does_not_pass() -> None:
    lost = scores(tuple(item(number, True, False) for number in range(200)), holdout())
    summary = summarise(lost, training=USUAL)
    assert (summary.verdict, summary.suggestions[0].code) == ("block", "learning_rate_lower")
    kept = scores(tuple(item(number, True, True) for number in range(200)), holdout())
    assert summarise(kept, training=USUAL).suggestions == ()
