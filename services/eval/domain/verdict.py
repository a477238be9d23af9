"""The gate: a pure function of paired scores.

Scores that are not finite block, regardless of all else: there is nothing to compare. Otherwise
the result is compared with the base model, and with the version in production on the items that
both have answered; `tunery.gate.decision` says when that blocks, passes or decides nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import comb
from typing import Final, TypeAlias

from msgspec.structs import replace

from schemas.envelope import Reason
from schemas.gate import GateComparison, GatePolicy, JudgeResult, MeasureResult, SafetyResult
from schemas.model import ScoreSummary, Verdict
from schemas.reasons import VerdictCode, judging
from schemas.training import TrainingFacts
from schemas.units import PPM, divide_up
from services.eval.domain.benchmarked import benchmark_results, safety_reasons, safety_results
from services.eval.domain.measured import measure_results, measured_reason
from services.eval.domain.suggestions import suggest
from tunery.gate.decision import (
    SINGLE_LOOK,
    Comparison,
    ComparisonResult,
    Decision,
    Differences,
    Pairs,
    Rule,
    decide,
    overall,
)
from tunery.gate.judged import judge_result, judged_reason
from tunery.gate.outcomes import LEARNT_SHARE
from tunery.work.scores import PAIRS, BenchmarkScores, ItemScore, Scores

# The gate for a reward model: whether it tells preferred answers from others, by pairs held back.
#
# There are no questions that it could lose: it answers none. So it is compared with chance, by the
# exact binomial test, which the number of pairs makes strict or not. How many of the pairs the base
# model tells apart by its likelihoods is reported as well, and decides nothing.


def are_pairs(items: Sequence[ItemScore]) -> bool:
    """Return whether the items of an evaluation are preference pairs for a reward model."""
    return bool(items) and all(item.category == PAIRS for item in items)


def judge_pairs(items: Sequence[ItemScore], alpha_ppm: int) -> tuple[Verdict, Reason, int]:
    """The verdict on a reward model, its reason, and the p-value of better than chance.

    alpha_ppm: how often one that guesses may pass.
    """
    n = len(items)
    right, base = sum(item.adapter for item in items), sum(item.base for item in items)
    better_ppm, worse_ppm = _p_ppm(right, n), _p_ppm(n - right, n)
    verdict: Verdict = "inconclusive"
    code: VerdictCode = "pairs_undecided"
    if better_ppm < alpha_ppm:
        verdict, code = "pass", "pairs_told_apart"
    elif worse_ppm < alpha_ppm:
        verdict, code = "block", "pairs_reversed"
    figures = {"items": n, "right_ppm": PPM * right // n, "base_right_ppm": PPM * base // n}
    return verdict, judging(code, **figures, p_ppm=min(better_ppm, worse_ppm)), better_ppm


def _p_ppm(right: int, n: int) -> int:
    """Probability that at least `right` of n are right by chance; in millionths, rounded up."""
    ways = sum(comb(n, count) for count in range(right, n + 1))
    return divide_up(PPM * ways, 1 << n)


DROP_MAX_PPM: Final = 100_000  # ten points, where a job does not say: 200 items seldom prove less
POLICY: Final = GatePolicy()
# benchmark, None: the bundled questions; version in production, None: the base model
ComparedWith: TypeAlias = tuple[str | None, str | None]
BeforeAndNow: TypeAlias = tuple[ItemScore, ItemScore]  # an item of the other side, and of this
ITEMS_MIN: Final = 200
BASE_CODES: Final[Mapping[Decision, VerdictCode]] = {
    "block": "drop_shown",
    "pass": "drop_excluded",
    "inconclusive": "drop_undecided",
}
BENCHMARK_CODES: Final[Mapping[Decision, VerdictCode]] = {
    "block": "benchmark_drop_shown",
    "pass": "benchmark_drop_excluded",
    "inconclusive": "benchmark_drop_undecided",
}
BENCHMARK_PRODUCTION_CODES: Final[Mapping[Decision, VerdictCode]] = {
    "block": "benchmark_production_shown",
    "pass": "benchmark_production_excluded",
    "inconclusive": "benchmark_production_undecided",
}
PRODUCTION_CODES: Final[Mapping[Decision, VerdictCode]] = {
    "block": "production_drop_shown",
    "pass": "production_drop_excluded",
    "inconclusive": "production_drop_undecided",
}


@dataclass(frozen=True)
class Production:
    """The version in production: its name, and what it answered when it was evaluated."""

    model_id: str
    items: tuple[ItemScore, ...]
    # items by the hash of their benchmark
    benchmarks: Mapping[str, tuple[ItemScore, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Looks:
    """Position in a sequential test: number of this interim analysis, from 1, and the planned
    shares of items, in millionths; empty: there is a single analysis.
    """

    number: int = 1
    planned_ppm: tuple[int, ...] = ()

    @property
    def fractions(self) -> tuple[float, ...]:
        """Shares of the items at each of them."""
        return tuple(share / PPM for share in self.planned_ppm) or SINGLE_LOOK


LAST_LOOK: Final = Looks()


def summarise(
    scores: Scores,
    drop_max_ppm: int | None = None,
    production: Production | None = None,
    policy: GatePolicy = POLICY,
    training: TrainingFacts | None = None,
    looks: Looks = LAST_LOOK,
) -> ScoreSummary:
    """Verdict and figures of one evaluation.

    drop_max_ppm: limit of the job; None: the policy's, or else DROP_MAX_PPM. training: None: not
    recorded. looks: the interim analysis, and the planned ones.
    """
    items, holdout = scores.items, scores.holdout
    allowed = next(
        drop for drop in (drop_max_ppm, policy.drop_max_ppm, DROP_MAX_PPM) if drop is not None
    )
    of_pairs = are_pairs(items)
    comparisons = (
        ()
        if of_pairs
        else compare(items, allowed, production, policy.alpha_ppm, scores.benchmarks, looks)
    )
    p_ppm = comparisons[0].p_ppm if comparisons else PPM
    measures = () if of_pairs else measure_results(scores, policy)
    if scores.not_finite:
        verdict, reasons = _block_not_finite(scores.not_finite)
    elif of_pairs:
        verdict, reason, p_ppm = judge_pairs(items, policy.alpha_ppm)
        verdict, reasons = _judge_gain(scores, policy, verdict, (reason,))
    else:
        verdict, reasons = judge(comparisons, policy)
        if measures:  # the tenant's own say more than the loss
            verdict, reasons = _judge_measured(measures[0], policy, verdict, reasons)
        else:
            verdict, reasons = _judge_gain(scores, policy, verdict, reasons)
    safety = safety_results(scores.benchmarks, policy)
    if not scores.not_finite:
        verdict, reasons = _judge_safety(safety, policy, verdict, reasons)
    judge_said = None if scores.judgement is None else judge_result(scores.judgement, policy)
    if judge_said is not None and not scores.not_finite:
        verdict, reasons = _judge_judged(judge_said, policy, verdict, reasons)
    if verdict == "pass" and (code := _unlearned(scores)) is not None:
        reasons += (judging(code),)
    return ScoreSummary(
        verdict=verdict,
        reasons=reasons,
        items=len(items),
        base_correct=sum(item.base for item in items),
        adapter_correct=sum(item.adapter for item in items),
        p_value_ppm=p_ppm,
        base_loss_ppm=_ppm(holdout.base_loss),
        adapter_loss_ppm=_ppm(holdout.adapter_loss),
        base_exact_match_ppm=_share_ppm(holdout.base_exact, holdout.generated),
        adapter_exact_match_ppm=_share_ppm(holdout.adapter_exact, holdout.generated),
        comparisons=comparisons,
        policy=policy,
        measures=measures,
        suggestions=suggest(scores, reasons, measures, training),
        judge=judge_said,
        benchmarks=benchmark_results(scores.benchmarks),
        safety=safety,
        look=looks.number,
        looks_ppm=looks.planned_ppm,
    )


def wants_more_items(summary: ScoreSummary, policy: GatePolicy = POLICY) -> bool:
    """Return whether a further interim analysis may decide what this one does not.

    Only the comparisons get more items; whatever else blocks, blocks in any case.
    """
    if summary.look >= len(summary.looks_ppm) or summary.verdict == "block":
        return False
    return judge(summary.comparisons, policy)[0] == "inconclusive"


def compare(
    items: Sequence[ItemScore],
    drop_max_ppm: int,
    production: Production | None = None,
    alpha_ppm: int = POLICY.alpha_ppm,
    benchmarks: Sequence[BenchmarkScores] = (),
    looks: Looks = LAST_LOOK,
) -> tuple[GateComparison, ...]:
    """Compare a result with the base model, and with the version in production if there is one.

    First on the bundled questions, then on each benchmark, with one correction for all of them.
    """
    pairs = _pairs_of_task(
        None, items, production, None if production is None else production.items
    )
    for asked in benchmarks:
        before = None if production is None else production.benchmarks.get(asked.sha256)
        if asked.items:
            pairs |= _pairs_of_task(asked.name, asked.items, production, before)
    rule = Rule(drop_max_ppm / PPM, alpha_ppm / PPM, ITEMS_MIN)
    results = decide(tuple(pairs.values()), rule, looks.fractions, looks.number)
    return tuple(
        replace(_comparison(model_id, pair, result, rule), benchmark=benchmark)
        for ((benchmark, model_id), pair), result in zip(pairs.items(), results, strict=True)
    )


def _pairs_of_task(
    benchmark: str | None,
    items: Sequence[ItemScore],
    production: Production | None,
    before: Sequence[ItemScore] | None,
) -> dict[ComparedWith, Comparison]:
    """before: what the version in production answered; None: it was not asked."""
    compare_answers = _differences if any(item.group for item in items) else _pairs
    of_base = [replace(item, adapter=item.base, adapter_share=item.base_share) for item in items]
    pairs: dict[ComparedWith, Comparison] = {
        (benchmark, None): compare_answers([*zip(of_base, items, strict=True)])
    }
    if production is not None and before is not None:
        then = {item.id: item for item in before}
        answered = [(then[item.id], item) for item in items if item.id in then]
        pairs[benchmark, production.model_id] = compare_answers(answered)
    return pairs


def judge(
    comparisons: Sequence[GateComparison], policy: GatePolicy = POLICY
) -> tuple[Verdict, tuple[Reason, ...]]:
    """The verdict on the comparisons that may block, together, and a reason for each of all."""
    verdicts = [
        comparison.verdict
        for comparison in comparisons
        if ("capability" if comparison.model_id is None else "production") in policy.blocking
    ]
    verdict = overall(verdicts) if verdicts else "pass"  # the tenant lets none of them block
    return verdict, tuple(_reason(comparison) for comparison in comparisons)


def _judge_gain(
    scores: Scores, policy: GatePolicy, verdict: Verdict, reasons: tuple[Reason, ...]
) -> tuple[Verdict, tuple[Reason, ...]]:
    """Add a reason, and block if "holdout" does, where the validation loss fell by less than
    required.
    """
    base, adapter = scores.holdout.base_loss, scores.holdout.adapter_loss
    if base is None or adapter is None or base <= 0:
        return verdict, reasons
    gain_ppm = round(PPM * (base - adapter) / base)
    if gain_ppm >= policy.gain_min_ppm:
        return verdict, reasons
    below = judging("gain_below", gain_ppm=gain_ppm, gain_min_ppm=policy.gain_min_ppm)
    return ("block" if "holdout" in policy.blocking else verdict), (*reasons, below)


def _judge_measured(
    result: MeasureResult, policy: GatePolicy, verdict: Verdict, reasons: tuple[Reason, ...]
) -> tuple[Verdict, tuple[Reason, ...]]:
    """Add the reason and, if "holdout" blocks, the verdict of the deciding measure."""
    reasons = (*reasons, measured_reason(result))
    if "holdout" not in policy.blocking:
        return verdict, reasons
    return overall((verdict, result.verdict)), reasons


def _judge_judged(
    result: JudgeResult, policy: GatePolicy, verdict: Verdict, reasons: tuple[Reason, ...]
) -> tuple[Verdict, tuple[Reason, ...]]:
    """Add the reason and, if "judge" blocks, the verdict of the judge."""
    reasons = (*reasons, judged_reason(result))
    if "judge" not in policy.blocking:
        return verdict, reasons
    return overall((verdict, result.verdict)), reasons


def _judge_safety(
    results: Sequence[SafetyResult],
    policy: GatePolicy,
    verdict: Verdict,
    reasons: tuple[Reason, ...],
) -> tuple[Verdict, tuple[Reason, ...]]:
    """Add the reasons and, if "safety" blocks, the verdicts of the safety benchmarks."""
    reasons = (*reasons, *(reason for result in results for reason in safety_reasons(result)))
    if "safety" not in policy.blocking:
        return verdict, reasons
    return overall((verdict, *(result.verdict for result in results))), reasons


def _reason(comparison: GateComparison) -> Reason:
    n, benchmark = comparison.items, comparison.benchmark
    if n < ITEMS_MIN and benchmark is not None:
        return judging("benchmark_items_few", benchmark=benchmark, items=n, limit=ITEMS_MIN)
    if n < ITEMS_MIN:
        return judging("items_too_few", items=n, limit=ITEMS_MIN)
    figures: dict[str, str | int] = {
        "change_ppm": comparison.change_ppm,
        "items": n,
        "p_ppm": comparison.adjusted_p_ppm,
        "drop_max_ppm": comparison.drop_max_ppm,
    }
    if comparison.verdict != "block":
        figures["bound_ppm"] = comparison.bound_ppm
    if benchmark is not None:
        figures["benchmark"] = benchmark
    if comparison.model_id is None:
        codes = BASE_CODES if benchmark is None else BENCHMARK_CODES
        return judging(codes[comparison.verdict], **figures)
    figures["model_id"] = comparison.model_id
    codes = PRODUCTION_CODES if benchmark is None else BENCHMARK_PRODUCTION_CODES
    return judging(codes[comparison.verdict], **figures)


def _pairs(answers: Sequence[BeforeAndNow]) -> Pairs:
    """Counts of items that only one side answered right."""
    worse = sum(before.adapter and not now.adapter for before, now in answers)
    better = sum(now.adapter and not before.adapter for before, now in answers)
    return Pairs(len(answers), worse, better)


def _differences(answers: Sequence[BeforeAndNow]) -> Differences:
    """Return the differences of shares by group; shares that are not finite count as 0."""
    return Differences(
        tuple(
            (now.adapter_share or 0.0) - (before.adapter_share or 0.0) for before, now in answers
        ),
        tuple(now.group for _, now in answers),
    )


def _comparison(
    model_id: str | None, pairs: Comparison, result: ComparisonResult, rule: Rule
) -> GateComparison:
    return GateComparison(
        verdict=result.decision,
        items=pairs.items,
        worse=pairs.worse,
        better=pairs.better,
        p_ppm=round(PPM * result.p),
        adjusted_p_ppm=round(PPM * result.p_adjusted),
        bound_ppm=round(PPM * result.bound),
        drop_max_ppm=round(PPM * rule.drop_max),
        alpha_ppm=round(PPM * rule.alpha),
        smallest_ppm=round(PPM * result.smallest),
        model_id=model_id,
        share_drop_ppm=round(PPM * pairs.drop) if isinstance(pairs, Differences) else None,
    )


def _block_not_finite(sides: tuple[str, ...]) -> tuple[Verdict, tuple[Reason, ...]]:
    return "block", (judging("scores_not_finite", sides=", ".join(sides)),)


def _unlearned(scores: Scores) -> VerdictCode | None:
    """Why an adapter that may pass is no better on its own rows; None: it is, or there are none."""
    base, adapter = scores.holdout.base_loss, scores.holdout.adapter_loss
    if base is None or adapter is None or adapter < LEARNT_SHARE * base:
        return None
    return "validation_loss_rose" if adapter > base else "validation_loss_same"


def _ppm(value: float | None) -> int:
    return -1 if value is None else round(PPM * value)


def _share_ppm(count: int, of: int) -> int:
    return PPM * count // of if of else -1
