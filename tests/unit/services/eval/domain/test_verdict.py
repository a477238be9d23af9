"""The gate's statistics: known values, bounds, and its behaviour on simulated adapters."""

from math import comb
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from schemas.reasons import judging
from services.eval.domain.verdict import (
    drop_upper_bound,
    judge,
    mcnemar_worse,
    summarise,
)
from tests.unit.services.eval.samples import holdout, item, scores
from tunery.work.scores import ItemScore


def items(both: int, worse: int, better: int, neither: int) -> tuple[ItemScore, ...]:
    pairs = [(True, True)] * both + [(True, False)] * worse
    pairs += [(False, True)] * better + [(False, False)] * neither
    return tuple(item(number, base, adapter) for number, (base, adapter) in enumerate(pairs))


@pytest.mark.parametrize("count", [0, 50, 400])
@pytest.mark.parametrize("sides", [("adapter",), ("base", "adapter"), ("base",)])
def test_training_m9_scores_that_are_not_finite_block(sides: tuple[str, ...], count: int) -> None:
    """Finding M9: an adapter that gives NaN was judged by chance, or not at all."""
    answered = items(count, 0, 0, 0)
    sound = scores(answered, holdout())
    assert summarise(sound).verdict == ("pass" if count >= 200 else "inconclusive")
    summary = summarise(replace(sound, not_finite=sides))
    assert summary.verdict == "block"
    assert summary.reasons == (judging("scores_not_finite", sides=", ".join(sides)),)


def test_mcnemar_known_values() -> None:
    assert mcnemar_worse(0, 0) == 1.0
    assert mcnemar_worse(5, 0) == pytest.approx(1 / 32)
    assert mcnemar_worse(8, 2) == pytest.approx((comb(10, 8) + comb(10, 9) + 1) / 1024)


@given(st.integers(0, 60), st.integers(0, 60))
def test_mcnemar_is_a_probability_and_falls_with_more_losses(worse: int, better: int) -> None:
    p = mcnemar_worse(worse, better)
    more = mcnemar_worse(worse + 1, better)
    assert 0 < p <= 1
    assert more < p or p == more == 1.0  # a float cannot tell the last few from certainty


@given(st.integers(0, 80), st.integers(0, 80), st.integers(200, 1000))
def test_upper_bound_lies_above_the_drop(worse: int, better: int, n: int) -> None:
    assert drop_upper_bound(worse, better, n) > (worse - better) / (n + 2)


@pytest.mark.parametrize(
    ("both", "worse", "better", "neither", "verdict"),
    [
        (110, 5, 5, 100, "pass"),
        (80, 40, 5, 95, "block"),
        (90, 25, 10, 95, "inconclusive"),
        (10, 90, 0, 0, "inconclusive"),  # clear, yet too few items to say so
    ],
)
def test_three_outcomes(both: int, worse: int, better: int, neither: int, verdict: str) -> None:
    assert judge(items(both, worse, better, neither))[0] == verdict


@pytest.mark.parametrize(
    ("worse", "drop_max_ppm", "verdict"),
    [
        (0, 20_000, "pass"),
        (4, 20_000, "inconclusive"),
        (12, 20_000, "block"),
        (12, 100_000, "pass"),
    ],
)
def test_a_job_sets_its_own_limit_of_the_drop(worse: int, drop_max_ppm: int, verdict: str) -> None:
    pairs = items(100, worse, 0, 110 - worse)
    outcome, reasons = judge(pairs, drop_max_ppm)
    assert outcome == verdict
    if verdict == "block":
        assert reasons[0].params["drop_max_ppm"] == 20_000


def simulated(seed: int, drop: float, n: int = 220) -> str:
    """Verdict on an adapter whose answers flip on 10 % of the items, with this true drop."""
    draw = Random(seed)
    pairs = []
    for i in range(n):
        base, u = draw.random() < 0.5 + drop, draw.random()
        flip = u < (0.10 + 2 * drop if base else 0.10)
        pairs.append(item(i, base, base ^ flip))
    return judge(tuple(pairs))[0]


def test_an_unchanged_adapter_is_hardly_ever_blocked() -> None:
    assert sum(simulated(seed, 0.0) == "block" for seed in range(400)) <= 4


def test_a_ruined_adapter_is_blocked() -> None:
    assert sum(simulated(seed, 0.25) == "block" for seed in range(400)) >= 380


def test_summary_counts_and_reasons() -> None:
    summary = summarise(scores(items(80, 40, 5, 95), holdout()))
    assert (summary.verdict, summary.items) == ("block", 220)
    assert (summary.base_correct, summary.adapter_correct) == (120, 85)
    assert (summary.base_loss_ppm, summary.adapter_loss_ppm) == (2_000_000, 1_000_000)
    assert summary.adapter_exact_match_ppm == 250_000
    assert summary.reasons == (
        judging(
            "drop_shown",
            change_ppm=-(1_000_000 * 35 // 220),
            items=220,
            p_ppm=summary.p_value_ppm,
            drop_max_ppm=100_000,
        ),
    )


def test_a_rising_validation_loss_is_a_reason() -> None:
    summary = summarise(scores(items(110, 5, 5, 100), holdout(1.0, 1.5)))
    assert summary.verdict == "pass"
    assert summary.reasons[-1] == judging("validation_loss_rose")


@pytest.mark.parametrize("after", [0.991, 1.0])
def test_first_hour_15_an_adapter_that_learnt_nothing_is_told_so(after: float) -> None:
    """It passed like one that had: the verdict ignored the tenant's own rows."""
    summary = summarise(scores(items(110, 5, 5, 100), holdout(1.0, after)))
    assert (summary.verdict, summary.reasons[-1].code) == ("pass", "validation_loss_same")
    learnt = summarise(scores(items(110, 5, 5, 100), holdout(1.0, 0.5)))
    assert [reason.code for reason in learnt.reasons] == ["drop_excluded"]


def test_first_hour_15_a_verdict_keeps_the_bound_that_it_rests_on() -> None:
    (reason,) = judge(items(110, 5, 5, 100), 50_000)[1]
    bound_ppm = round(1_000_000 * drop_upper_bound(5, 5, 220))
    assert (reason.params["bound_ppm"], reason.params["drop_max_ppm"]) == (bound_ppm, 50_000)
    assert bound_ppm < 50_000


def test_losses_without_validation_rows_are_minus_one() -> None:
    summary = summarise(scores(items(110, 5, 5, 100), holdout(None, None)))
    assert summary.base_loss_ppm == -1
