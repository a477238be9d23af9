"""The verdict on a reward model."""

import pytest

from services.eval.domain.verdict import are_pairs, judge_pairs, summarise
from services.gateway.jobs.domain.gate_responses import gate_response
from tunery.work.scores import PAIRS, HoldoutScores, ItemScore, Scores


def items(right: int, of: int, base: int = 0) -> tuple[ItemScore, ...]:
    return tuple(
        ItemScore(
            id=f"pair-{number}",
            category=PAIRS,
            base=number < base,
            adapter=number < right,
            base_choice=int(number >= base),
            adapter_choice=int(number >= right),
        )
        for number in range(of)
    )


@pytest.mark.parametrize(
    ("right", "of", "verdict", "code"),
    [
        (4, 4, "inconclusive", "pairs_undecided"),  # 1 of 16 by chance
        (5, 5, "pass", "pairs_told_apart"),  # 1 of 32
        (15, 20, "pass", "pairs_told_apart"),
        (14, 20, "inconclusive", "pairs_undecided"),  # 5.8 %
        (10, 20, "inconclusive", "pairs_undecided"),
        (5, 20, "block", "pairs_reversed"),
    ],
)
def test_a_reward_model_is_compared_with_chance(
    right: int, of: int, verdict: str, code: str
) -> None:
    decided, reason, _ = judge_pairs(items(right, of), 50_000)
    assert (decided, reason.code) == (verdict, code)


def test_the_summary_says_what_was_measured() -> None:
    holdout = HoldoutScores(
        rows=40,
        tokens=100,
        base_loss=0.6931,
        adapter_loss=0.2,
        base_perplexity=None,
        adapter_perplexity=None,
        generated=0,
        base_exact=0,
        adapter_exact=0,
    )
    scores = Scores(
        base_sha256="a",
        adapter_sha256="b",
        precision="float32",
        items=items(18, 20, base=11),
        holdout=holdout,
        answers=(),
    )
    summary = summarise(scores)
    assert (summary.verdict, summary.comparisons) == ("pass", ())
    shown = gate_response(summary)
    (reason,) = shown.reasons
    assert reason == (
        "90 % of 20 pairs held back are ranked rightly by their rewards, more than by chance "
        "(p = 0.0002); by the base model's likelihoods 55 % are"
    )
    assert (shown.base.accuracy, shown.adapter.accuracy) == (0.55, 0.9)
    assert shown.rule == (
        "block: pairs held back are ranked worse than by chance (exact binomial test, p < 0.05); "
        "pass: better than by chance; else inconclusive"
    )
    assert not are_pairs(())
