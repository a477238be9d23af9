"""The gain on a tenant's own rows: shown, ruled out, or neither, and how often that errs."""

import random
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from schemas.gate import GatePolicy
from schemas.model import Verdict
from services.eval.domain.measured import ROWS_MIN, measure_results
from services.eval.domain.verdict import summarise
from tests.unit.services.eval.samples import holdout, item, measured, scores
from tunery.work.scores import MeasuredRow, Scores

BLOCKING = GatePolicy(blocking=("capability", "holdout"))
KNOWN = tuple(item(number, True, True) for number in range(200))


def by_measure(rows: Sequence[MeasuredRow], *kinds: str) -> Scores:
    plain = scores(KNOWN, holdout())
    return replace(plain, measures=kinds or ("token_f1",), rows=tuple(rows))


def rows_of(base: Sequence[float], adapter: Sequence[float]) -> list[MeasuredRow]:
    both = zip(base, adapter, strict=True)
    return [measured(number, before, after) for number, (before, after) in enumerate(both)]


@pytest.mark.parametrize(
    ("base", "adapter", "verdict", "code"),
    [
        ([0.2, 0.4] * 20, [0.6, 0.9] * 20, "pass", "measure_gained"),
        ([0.0] * 40, [0.0, 1.0] * 20, "pass", "measure_gained"),
        ([0.0] * 40, [0.0] * 40, "block", "measure_below"),
        ([0.5] * 40, [0.51] * 40, "block", "measure_below"),
        ([0.0, 1.0] * 20, [1.0, 0.0] * 20, "inconclusive", "measure_undecided"),
        ([1.0] * 40, [1.0] * 40, "pass", "measure_kept"),
        ([1.0] * 40, [0.9] * 40, "block", "measure_lost"),
        ([0.0] * (ROWS_MIN - 1), [1.0] * (ROWS_MIN - 1), "inconclusive", "measure_rows_few"),
        ([], [], "inconclusive", "measure_rows_few"),
    ],
)
def test_a_verdict_of_the_measure_that_decides(
    base: list[float], adapter: list[float], verdict: Verdict, code: str
) -> None:
    summary = summarise(by_measure(rows_of(base, adapter)), policy=BLOCKING)
    (result,) = summary.measures
    assert (result.verdict, summary.verdict, result.rows) == (verdict, verdict, len(base))
    assert summary.reasons[-1].code == code
    unblocking = summarise(by_measure(rows_of(base, adapter)))
    assert (unblocking.verdict, unblocking.reasons[-1].code) == ("pass", code), (
        "told, and does not block"
    )


def test_the_first_measure_decides_and_the_others_are_reported() -> None:
    rows = [
        replace(row, base_scores=(*row.base_scores, 1.0), adapter_scores=(*row.adapter_scores, 0.0))
        for row in rows_of([0.2] * 30, [0.8] * 30)
    ]
    summary = summarise(by_measure(rows, "chrf", "regex"), policy=BLOCKING)
    assert summary.verdict == "pass"
    assert [(result.kind, result.verdict) for result in summary.measures] == [
        ("chrf", "pass"),
        ("regex", "block"),
    ]
    codes = [reason.code for reason in summary.reasons]
    assert "measure_gained" in codes
    assert "measure_lost" not in codes


def test_bounds_and_means_are_reported_in_millionths() -> None:
    (result,) = measure_results(by_measure(rows_of([0.25] * 30, [0.75] * 30)), BLOCKING)
    assert (result.base_ppm, result.adapter_ppm) == (250_000, 750_000)
    assert (result.low_ppm, result.high_ppm) == (500_000, 500_000)
    assert result.gain_min_ppm == BLOCKING.gain_min_ppm


def test_rows_with_the_same_prompt_are_drawn_together() -> None:
    """Forty copies of two rows are two rows: nothing is shown by them."""
    rows = rows_of([0.5, 0.5] * 20, [0.9, 0.45] * 20)
    alone = measure_results(by_measure(rows), BLOCKING)[0]
    copies = [replace(row, group=str(row.row % 2)) for row in rows]
    together = measure_results(by_measure(copies), BLOCKING)[0]
    assert (alone.verdict, together.verdict) == ("pass", "inconclusive")
    assert together.low_ppm < alone.low_ppm


@pytest.mark.long
def test_a_gain_that_is_not_there_is_shown_in_at_most_alpha_of_the_cases() -> None:
    """Adapters whose true gain is just what is wanted: "pass" errs."""
    drawn = random.Random(11)
    policy, cases, wrong = GatePolicy(alpha_ppm=50_000), 60, 0
    for _ in range(cases):
        base = [drawn.uniform(0.2, 0.8) for _ in range(ROWS_MIN * 2)]
        adapter = [score * 1.05 + drawn.gauss(0, 0.2) for score in base]
        wrong += measure_results(by_measure(rows_of(base, adapter)), policy)[0].verdict == "pass"
    assert wrong <= cases * 0.1, "a bootstrap of 40 rows errs a little more than its alpha"
