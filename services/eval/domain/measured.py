"""Results of the tenant's own measures: the gain on its rows, with bounds. Pure."""

from collections.abc import Sequence
from typing import Final

from schemas.envelope import Reason
from schemas.gate import GatePolicy, MeasureResult
from schemas.model import Verdict
from schemas.reasons import VerdictCode, judging
from schemas.units import PPM
from tunery.gate.resampling import Interval, paired_interval
from tunery.work.scores import MeasuredRow, Scores

ROWS_MIN: Final = 20  # the bootstrap of fewer is too narrow
SCORE_MAX: Final = 1.0  # of every measure by name
LOSS_MAX: Final = 0.02  # of a base model that leaves no room for a gain


def measure_results(scores: Scores, policy: GatePolicy) -> tuple[MeasureResult, ...]:
    """A result for each measure, in the order in which the tenant named them."""
    return tuple(
        _result(kind, number, scores.rows, policy) for number, kind in enumerate(scores.measures)
    )


def measured_reason(result: MeasureResult) -> Reason:
    """Return the reason of a verdict that the deciding measure gives."""
    if result.rows < ROWS_MIN:
        return judging("measure_rows_few", measure=result.kind, rows=result.rows, limit=ROWS_MIN)
    return judging(
        _code(result),
        measure=result.kind,
        rows=result.rows,
        base_ppm=result.base_ppm,
        adapter_ppm=result.adapter_ppm,
        gain_min_ppm=result.gain_min_ppm,
    )


def _code(result: MeasureResult) -> VerdictCode:
    can_gain = result.gain_min_ppm > 0
    match result.verdict:
        case "pass":
            return "measure_gained" if can_gain else "measure_kept"
        case "block":
            return "measure_below" if can_gain else "measure_lost"
        case "inconclusive":
            return "measure_undecided"


def _result(
    kind: str, number: int, rows: Sequence[MeasuredRow], policy: GatePolicy
) -> MeasureResult:
    base = [row.base_scores[number] for row in rows]
    adapter = [row.adapter_scores[number] for row in rows]
    groups = [row.group for row in rows]
    base_mean, adapter_mean = _mean(base), _mean(adapter)
    wanted = policy.gain_min_ppm / PPM
    can_gain = base_mean * (1 + wanted) <= SCORE_MAX
    differences = [after - before for before, after in zip(base, adapter, strict=True)]
    shown = _interval(differences, groups, policy.alpha_ppm)
    return MeasureResult(
        kind=kind,
        verdict=_verdict(base, differences, groups, policy, can_gain=can_gain),
        rows=len(rows),
        base_ppm=round(PPM * base_mean),
        adapter_ppm=round(PPM * adapter_mean),
        low_ppm=round(PPM * shown.low),
        high_ppm=round(PPM * shown.high),
        gain_min_ppm=policy.gain_min_ppm if can_gain else 0,
    )


def _verdict(
    base: Sequence[float],
    differences: Sequence[float],
    groups: Sequence[str],
    policy: GatePolicy,
    *,
    can_gain: bool,
) -> Verdict:
    """Return whether the required gain is shown (pass), excluded (block), or neither.

    A relative gain of g is there where the mean of adapter - base - g * |base| is above 0, which
    has no division by a base model that scores nothing. One that leaves no room for the gain has
    to be as good, but for LOSS_MAX.
    """
    if len(base) < ROWS_MIN:
        return "inconclusive"
    wanted = policy.gain_min_ppm / PPM
    margins = [
        difference - wanted * abs(before) if can_gain else difference + LOSS_MAX
        for before, difference in zip(base, differences, strict=True)
    ]
    bounds = _interval(margins, groups, policy.alpha_ppm)
    if bounds.low > 0:
        return "pass"
    return "block" if bounds.high <= 0 else "inconclusive"


def _interval(values: Sequence[float], groups: Sequence[str], alpha_ppm: int) -> Interval:
    """Two one-sided bounds, each of which errs in alpha of the cases."""
    if not values:
        return Interval(0.0, -SCORE_MAX, SCORE_MAX)
    return paired_interval(values, groups, alpha=2 * alpha_ppm / PPM)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
