"""Verdict on the tenant's own rows by a judge of two answers. Pure."""

from schemas.envelope import Reason
from schemas.gate import GatePolicy, JudgeResult, Verdict
from schemas.reasons import VerdictCode, judging
from schemas.units import PPM
from tunery.gate.pairwise import qualify, sign_test, tally, win_rate_interval
from tunery.work.scores import Judgement

CODES: dict[Verdict, VerdictCode] = {
    "pass": "judge_better",
    "block": "judge_worse",
    "inconclusive": "judge_undecided",
}
PROBLEMS: dict[str, VerdictCode] = {
    "judge_unconfigured": "judge_unconfigured",
    "judge_unavailable": "judge_unavailable",
    "judge_unqualified": "judge_unqualified",
}


def judge_result(judgement: Judgement, policy: GatePolicy) -> JudgeResult:
    """Wins and losses of the new model, and whether the judge may be believed.

    The verdict is `block` where an exact sign test of the decided pairs shows that it is worse,
    `pass` where it shows that it is better, and `inconclusive` otherwise.
    """
    counts, qualification = tally(judgement.rows), qualify(judgement.labelled)
    wins, losses, alpha = counts.b, counts.a, policy.alpha_ppm / PPM
    better, worse = sign_test(wins, losses), sign_test(losses, wins)
    low, high = win_rate_interval(wins, losses, alpha)
    unused = PROBLEMS.get(judgement.problem)
    if unused is None and not qualification.is_met:
        unused = "judge_unqualified"
    verdict: Verdict = "inconclusive"
    if unused is None and worse < alpha:
        verdict = "block"
    elif unused is None and better < alpha:
        verdict = "pass"
    return JudgeResult(
        model=judgement.model,
        verdict=verdict,
        unused=unused,
        rows=counts.pairs,
        wins=wins,
        losses=losses,
        ties=counts.ties,
        inconsistent=counts.inconsistent,
        unreadable=counts.unreadable,
        first_ppm=_share_ppm(counts.first, counts.pairs),
        second_ppm=_share_ppm(counts.second, counts.pairs),
        p_ppm=round(PPM * min(1.0, 2 * min(better, worse))),
        low_ppm=round(PPM * low),
        high_ppm=round(PPM * high),
        labelled=qualification.pairs,
        agreement_ppm=round(PPM * qualification.agreement),
        agreement_low_ppm=round(PPM * qualification.agreement_low),
        labelled_position_ppm=round(PPM * qualification.position),
    )


def judged_reason(result: JudgeResult) -> Reason:
    """Return the reason of a verdict that the judge gives."""
    if result.unused == "judge_unqualified":
        return judging(
            "judge_unqualified",
            rows=result.labelled,
            agreement_low_ppm=result.agreement_low_ppm,
            position_ppm=result.labelled_position_ppm,
        )
    if result.unused is not None:
        return judging(result.unused)
    return judging(
        CODES[result.verdict],
        rows=result.rows,
        wins=result.wins,
        losses=result.losses,
        ties=result.ties,
        p_ppm=result.p_ppm,
    )


def _share_ppm(count: int, of: int) -> int:
    return PPM * count // of if of else 0
