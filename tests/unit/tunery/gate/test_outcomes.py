"""The two answers of the gate in one word each."""

import pytest
from msgspec.structs import replace

from schemas.gate import GateComparison, GatePolicy, MeasureResult
from schemas.model import ScoreSummary, Verdict
from schemas.reasons import judging
from tunery.gate.outcomes import OwnTask, Skills, own_task_of, skills_of

COMPARISON = GateComparison(
    verdict="pass",
    items=249,
    worse=5,
    better=15,
    p_ppm=900_000,
    adjusted_p_ppm=900_000,
    bound_ppm=0,
    drop_max_ppm=100_000,
    alpha_ppm=50_000,
    smallest_ppm=48_000,
)
SUMMARY = ScoreSummary(
    verdict="pass",
    reasons=(),
    items=249,
    base_correct=157,
    adapter_correct=167,
    p_value_ppm=900_000,
    base_loss_ppm=690_000,
    adapter_loss_ppm=680_000,
    base_exact_match_ppm=-1,
    adapter_exact_match_ppm=-1,
    comparisons=(COMPARISON,),
    policy=GatePolicy(),
)
MEASURE = MeasureResult(
    kind="token_f1",
    verdict="pass",
    rows=64,
    base_ppm=100_000,
    adapter_ppm=500_000,
    low_ppm=300_000,
    high_ppm=500_000,
    gain_min_ppm=50_000,
)


@pytest.mark.parametrize(
    ("before", "after", "word"),
    [
        (690_000, 680_000, "not learnt"),  # DPO that did not move, and passed
        (1_000_000, 1_000_000, "not learnt"),  # reinforcement whose rewards were all 0
        (2_000_000, 2_400_000, "not learnt"),
        (4_730_000, 50_000, "learnt"),
        (1_500_000, 1_440_000, "unclear"),  # less than the policy wants, more than nothing
        (-1, -1, "unclear"),
        (0, 0, "unclear"),
    ],
)
def test_first_hour2_u17_the_own_task_has_a_word_of_its_own(
    before: int, after: int, word: OwnTask
) -> None:
    summary = replace(SUMMARY, base_loss_ppm=before, adapter_loss_ppm=after)
    assert (summary.verdict, skills_of(summary), own_task_of(summary)) == ("pass", "kept", word)


@pytest.mark.parametrize(
    ("verdict", "skills", "own_task"),
    [
        ("pass", "kept", "learnt"),
        ("block", "lost", "not learnt"),
        ("inconclusive", "unclear", "unclear"),
    ],
)
def test_first_hour2_u17_words_follow_the_verdicts_of_their_stage(
    verdict: Verdict, skills: Skills, own_task: OwnTask
) -> None:
    lost = replace(SUMMARY, comparisons=(replace(COMPARISON, verdict=verdict),))
    measured = replace(SUMMARY, measures=(replace(MEASURE, verdict=verdict),))
    assert (skills_of(lost), skills_of(measured)) == (skills, "kept")
    assert own_task_of(measured) == own_task


def test_first_hour2_u17_a_drop_behind_production_says_nothing_of_the_base_models_skills() -> None:
    behind = replace(COMPARISON, verdict="block", model_id="ft:base:acme::1")
    assert skills_of(replace(SUMMARY, comparisons=(COMPARISON, behind))) == "kept"


def test_first_hour2_u17_scores_that_are_not_finite_show_neither() -> None:
    broken = replace(SUMMARY, reasons=(judging("scores_not_finite", sides="adapter"),))
    assert (skills_of(broken), own_task_of(broken)) == ("lost", "not learnt")


def test_first_hour2_u17_a_reward_model_is_judged_by_its_pairs() -> None:
    pairs = judging("pairs_told_apart", items=40, right_ppm=1, base_right_ppm=1, p_ppm=1)
    ranked = replace(SUMMARY, comparisons=(), reasons=(pairs,))
    assert (skills_of(ranked), own_task_of(ranked)) == ("unclear", "learnt")


def test_first_hour2_u17_a_policy_that_wants_less_is_content_with_less() -> None:
    easy = replace(SUMMARY, policy=GatePolicy(gain_min_ppm=10_000))
    assert own_task_of(easy) == "learnt"
