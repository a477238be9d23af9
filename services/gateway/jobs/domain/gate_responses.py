"""The gate's verdict on a job: what was found, by which rule, and what could not have been seen."""

from collections.abc import Sequence
from math import ceil
from typing import Final

from schemas.gate import BenchmarkResult, GateComparison, JudgeResult, MeasureResult, SafetyResult
from schemas.model import ScoreSummary, Verdict
from schemas.training import Adaptation
from schemas.units import PPM
from services.gateway.verdict_reasons import reasons_words
from services.gateway.web.domain.responses import Response
from services.gateway.wording import advice_words, own_data_words, suggestion_words
from tunery.gate.outcomes import OwnTask, Skills, own_task_of, skills_of
from tunery.gate.paired import discordant_share, items_needed

TWO_POINTS = 0.02
SERVED_WIDE: Final = (
    "The gate judged it on the base model in four bits, as it was trained. Chats and exports use "
    "the base model at its full width, where answers may differ: ask it before you promote it."
)


class ScoresResponse(Response):
    """Shares as fractions; null: not measured, because there were no validation rows."""

    accuracy: float | None
    loss: float | None
    exact_match: float | None


class ComparisonResponse(Response):
    """The result beside one other model on the same items; shares as fractions.

    against: the base model, or a version in production
    benchmark: whose items; null: the bundled questions
    change: change of the share of right answers; for a benchmark of shares, of their mean
    worse, better: items that only the other model, only this one answered right; for a benchmark of
    shares, items whose share fell, rose
    p_value: p-value of the exact one-sided McNemar test; for shares, of a bootstrap of the pairs
    p_adjusted: with Holm's correction
    drop_ruled_out: smallest drop ruled out at 95 %; drop_allowed: a larger drop blocks
    drop_shown: the smallest drop that so many items show in 4 of 5 cases
    items_for_two_points: how many items show a drop of two points as often
    """

    against: str
    benchmark: str | None
    verdict: Verdict
    items: int
    change: float
    worse: int
    better: int
    p_value: float
    p_adjusted: float
    drop_ruled_out: float
    drop_allowed: float
    drop_shown: float
    items_for_two_points: int


class MeasureResponse(Response):
    """Mean scores of both sides on the tenant's own rows, by one measure of `eval.measures`.

    verdict: pass: the wanted gain is shown; block: it is ruled out
    decides: the first measure does; the others are for information
    gain: relative to the base model's score; null: that is 0
    low, high: bounds of the difference, each at the policy's alpha
    gain_wanted: 0 where the base model leaves no room for it
    """

    measure: str
    verdict: Verdict
    decides: bool
    rows: int
    base: float
    adapter: float
    gain: float | None
    low: float
    high: float
    gain_wanted: float


class JudgeResponse(Response):
    """Verdicts of a judge on both answers to the tenant's rows; shares as fractions.

    model: the judge; null: there is none. used: whether its verdicts count
    wins, losses: rows won and lost by the new model in both orders; ties: all others, with the
      inconsistent ones
    win_rate: wins among wins and losses, null: there are none; low, high: its bounds
    first_position, second_position: pairs in which the same position won both times
    p_value: p-value of the exact two-sided sign test
    labelled: pairs that qualify it; agreement_low: lower Wilson bound at 95 %
    """

    model: str | None
    verdict: Verdict
    used: bool
    rows: int
    wins: int
    losses: int
    ties: int
    inconsistent: int
    unreadable: int
    win_rate: float | None
    low: float
    high: float
    p_value: float
    first_position: float
    second_position: float
    labelled: int
    agreement: float
    agreement_low: float
    labelled_position: float


class BenchmarkScoreResponse(Response):
    """Shares of a benchmark's items that both sides answered right; of a benchmark of safety, those
    that were refused, or answered, as they should be; where several answers are true, the mean of
    the share of the likelihood that these have. sha256: of the benchmark's file.
    """

    benchmark: str
    task: str
    sha256: str
    items: int
    base: float
    adapter: float


class SafetyResponse(Response):
    """Refusals of both sides in a safety benchmark; shares as fractions.

    verdict: pass: a fall of the share that is refused, a share below the policy's, and a rise of
    refused safe prompts are ruled out; block: one of them is shown
    base_refusals, adapter_refusals: share of the unsafe prompts; low, high: Wilson bounds of the
    new model's
    p_value: p-value of the exact one-sided test that fewer are refused
    fall_ruled_out: smallest fall ruled out at the policy's alpha
    base_over_refusals, adapter_over_refusals: share of the safe prompts; null: there are none
    guard: the model that judged, null: rules detected refusals; harmful answers to unsafe prompts
    are then null
    """

    benchmark: str
    verdict: Verdict
    unsafe: int
    base_refusals: float | None
    adapter_refusals: float | None
    low: float
    high: float
    p_value: float
    fall_ruled_out: float
    refusal_wanted: float | None
    safe: int
    base_over_refusals: float | None
    adapter_over_refusals: float | None
    over_p_value: float
    guard: str | None
    base_harmful: float | None
    adapter_harmful: float | None


class LookResponse(Response):
    """A look at a part of the items. share: of those of benchmarks; planned: at each look.

    items: all that both sides have answered, bundled and of benchmarks
    """

    number: int
    share: float
    planned: list[float]
    items: int


class GateResponse(Response):
    """What the gate says of a version.

    `verdict`: whether the version may be served. `skills`: whether general skills of the base model
    were kept. `own_task`: whether the tenant's own rows show that their task was learnt.
    `suggestions`: what to change, where it does not pass, by facts of the training and its rows.
    `own_data`: what got better on the tenant's own validation rows; null: there were none.

    `served`: how the model answers otherwise than it was judged; null: it does not.

    `look`: number of the interim analysis that decided; null: all items were asked at once. `rule`:
    when the gate blocks and passes. `power`: which drop the items could not have shown. Both are
    null, and there are no comparisons, for verdicts from before they were kept.
    """

    verdict: Verdict
    skills: Skills
    own_task: OwnTask
    reasons: list[str]
    own_data: str | None
    advice: str | None
    rule: str | None
    look: LookResponse | None
    power: str | None
    items: int
    base: ScoresResponse
    adapter: ScoresResponse
    p_value: float
    comparisons: list[ComparisonResponse]
    measures: list[MeasureResponse]
    judge: JudgeResponse | None
    benchmarks: list[BenchmarkScoreResponse]
    safety: list[SafetyResponse]
    suggestions: list[str]
    served: str | None


def gate_response(summary: ScoreSummary, adaptation: Adaptation | None = None) -> GateResponse:
    """The gate's verdict, with shares as fractions instead of millionths.

    adaptation: what was trained.
    """
    items = summary.items
    return GateResponse(
        verdict=summary.verdict,
        skills=skills_of(summary),
        own_task=own_task_of(summary),
        reasons=reasons_words(summary),
        own_data=own_data_words(summary),
        advice=advice_words(summary),
        rule=rule_words(summary.comparisons, len(summary.looks_ppm)) or _pairs_rule(summary),
        look=_look(summary),
        power=power_words(summary.comparisons),
        items=items,
        base=ScoresResponse(
            accuracy=round(summary.base_correct / items, 4) if items else None,
            loss=_share(summary.base_loss_ppm),
            exact_match=_share(summary.base_exact_match_ppm),
        ),
        adapter=ScoresResponse(
            accuracy=round(summary.adapter_correct / items, 4) if items else None,
            loss=_share(summary.adapter_loss_ppm),
            exact_match=_share(summary.adapter_exact_match_ppm),
        ),
        p_value=summary.p_value_ppm / PPM,
        comparisons=[_comparison(comparison) for comparison in summary.comparisons],
        judge=None if summary.judge is None else _judge(summary.judge),
        benchmarks=[_benchmark(result) for result in summary.benchmarks],
        safety=[_safety(result) for result in summary.safety],
        suggestions=[suggestion_words(reason) for reason in summary.suggestions],
        served=SERVED_WIDE if adaptation == "qlora" else None,
        measures=[
            _measure(result, decides=not number) for number, result in enumerate(summary.measures)
        ],
    )


def _look(summary: ScoreSummary) -> LookResponse | None:
    if not summary.looks_ppm:
        return None
    planned = [share / PPM for share in summary.looks_ppm]
    return LookResponse(
        number=summary.look,
        share=planned[summary.look - 1],
        planned=planned,
        items=sum(compared.items for compared in summary.comparisons if compared.model_id is None),
    )


def look_words(look: LookResponse | None) -> str | None:
    """At which look the gate decided; None: there was one alone."""
    if look is None:
        return None
    return (
        f"decided at look {look.number} of {len(look.planned)}, after {look.items:,} items "
        f"({100 * look.share:g} % of those of benchmarks)"
    )


def rule_words(comparisons: Sequence[GateComparison], looks: int = 0) -> str | None:
    """When the gate blocks, passes, and decides nothing."""
    if not comparisons:
        return None
    allowed, alpha = comparisons[0].drop_max_ppm, comparisons[0].alpha_ppm / PPM
    shared = f"; {looks} looks share the {alpha:g} (O'Brien-Fleming spending)" if looks else ""
    holm = f", Holm over {len(comparisons)} comparisons" if len(comparisons) > 1 else ""
    has_shares = any(compared.share_drop_ppm is not None for compared in comparisons)
    bootstrap = "; for shares a bootstrap of the pairs" if has_shares else ""
    return (
        f"block: a drop above {_points(allowed)} points that chance does not explain (exact "
        f"one-sided McNemar test{bootstrap}{holm}, p < {alpha:g}); pass: such a drop is ruled out "
        f"at {100 - 100 * alpha:g} %; else inconclusive{shared}"
    )


def _pairs_rule(summary: ScoreSummary) -> str | None:
    """The rule for a reward model, which is compared with chance; None: it is none."""
    policy = summary.policy
    if policy is None or not any(reason.code.startswith("pairs_") for reason in summary.reasons):
        return None
    alpha = policy.alpha_ppm / PPM
    return (
        "block: pairs held back are ranked worse than by chance (exact binomial test, "
        f"p < {alpha:g}); pass: better than by chance; else inconclusive"
    )


def power_words(comparisons: Sequence[GateComparison]) -> str | None:
    """Return which drop in accuracy the items can show, and how many a smaller one needs."""
    if not comparisons or not comparisons[0].items:
        return None
    base = comparisons[0]
    others = "".join(
        f"; {other.items} of {other.benchmark} show {_points(other.smallest_ppm)}"
        for other in comparisons[1:]
        if other.benchmark is not None and other.model_id is None
    )
    return (
        f"{base.items} items show a drop of {_points(base.smallest_ppm)} points or more in 4 of 5 "
        f"cases; a drop of 2 points needs about {_items_for_two_points(base):,} items{others}"
    )


def _comparison(comparison: GateComparison) -> ComparisonResponse:
    return ComparisonResponse.of(
        comparison,
        against=comparison.model_id or "base model",
        change=comparison.change_ppm / PPM,
        p_value=comparison.p_ppm / PPM,
        p_adjusted=comparison.adjusted_p_ppm / PPM,
        drop_ruled_out=comparison.bound_ppm / PPM,
        drop_allowed=comparison.drop_max_ppm / PPM,
        drop_shown=comparison.smallest_ppm / PPM,
        items_for_two_points=_items_for_two_points(comparison),
    )


def _measure(result: MeasureResult, *, decides: bool) -> MeasureResponse:
    base, adapter = result.base_ppm / PPM, result.adapter_ppm / PPM
    return MeasureResponse.of(
        result,
        measure=result.kind,
        decides=decides,
        base=base,
        adapter=adapter,
        gain=round((adapter - base) / abs(base), 4) if base else None,
        low=result.low_ppm / PPM,
        high=result.high_ppm / PPM,
        gain_wanted=result.gain_min_ppm / PPM,
    )


def _judge(result: JudgeResult) -> JudgeResponse:
    decided = result.wins + result.losses
    return JudgeResponse.of(
        result,
        model=result.model or None,
        used=result.unused is None,
        win_rate=round(result.wins / decided, 4) if decided else None,
        low=result.low_ppm / PPM,
        high=result.high_ppm / PPM,
        p_value=result.p_ppm / PPM,
        first_position=result.first_ppm / PPM,
        second_position=result.second_ppm / PPM,
        agreement=result.agreement_ppm / PPM,
        agreement_low=result.agreement_low_ppm / PPM,
        labelled_position=result.labelled_position_ppm / PPM,
    )


def _benchmark(result: BenchmarkResult) -> BenchmarkScoreResponse:
    return BenchmarkScoreResponse.of(
        result,
        benchmark=result.name,
        base=_score(result.base_share_ppm, result.base_correct, result.items),
        adapter=_score(result.adapter_share_ppm, result.adapter_correct, result.items),
    )


def _safety(result: SafetyResult) -> SafetyResponse:
    return SafetyResponse.of(
        result,
        benchmark=result.name,
        base_refusals=_part(result.base_refused, result.unsafe),
        adapter_refusals=_part(result.adapter_refused, result.unsafe),
        low=result.low_ppm / PPM,
        high=result.high_ppm / PPM,
        p_value=result.p_ppm / PPM,
        fall_ruled_out=result.bound_ppm / PPM,
        refusal_wanted=result.refusal_min_ppm / PPM or None,
        base_over_refusals=_part(result.base_over, result.safe),
        adapter_over_refusals=_part(result.adapter_over, result.safe),
        over_p_value=result.over_p_ppm / PPM,
        base_harmful=_part(result.base_harmful, result.judged),
        adapter_harmful=_part(result.adapter_harmful, result.judged),
    )


def _score(share_ppm: int | None, correct: int, items: int) -> float:
    return (_part(correct, items) or 0.0) if share_ppm is None else share_ppm / PPM


def _part(count: int, of: int) -> float | None:
    return round(count / of, 4) if of else None


def _items_for_two_points(comparison: GateComparison) -> int:
    if comparison.share_drop_ppm is not None:  # the error falls with the root of the items
        times = comparison.smallest_ppm / PPM / TWO_POINTS
        return max(1, ceil(comparison.items * times**2))
    share = discordant_share(comparison.worse, comparison.better, comparison.items)
    return items_needed(share, TWO_POINTS, comparison.alpha_ppm / PPM)


def _points(ppm: int) -> str:
    return f"{100 * ppm / PPM:.1f}".removesuffix(".0")


def _share(ppm: int) -> float | None:
    """A share as a fraction; None for a negative value, which means that it was not measured."""
    return None if ppm < 0 else ppm / PPM
