"""The gate's block of a job: the rule, what was found, and what could not have been seen."""

from msgspec.structs import replace

from schemas.gate import GateComparison, GatePolicy, MeasureResult
from schemas.reasons import judging, suggesting
from services.gateway.jobs.domain.gate_responses import (
    gate_response,
    look_words,
    power_words,
    rule_words,
)
from tests.unit.services.gateway.jobs.job_events import SUMMARY

BASE = GateComparison(
    verdict="pass",
    items=249,
    worse=12,
    better=10,
    p_ppm=415_000,
    adjusted_p_ppm=415_000,
    bound_ppm=38_000,
    drop_max_ppm=100_000,
    alpha_ppm=50_000,
    smallest_ppm=48_000,
)
PRODUCTION = replace(BASE, model_id="ft:smol:acme::1", verdict="inconclusive")


def test_scores_that_were_not_measured_are_null() -> None:
    gate = gate_response(replace(SUMMARY, base_loss_ppm=-1))
    assert gate.base.loss is None
    assert gate.adapter.loss == SUMMARY.adapter_loss_ppm / 1_000_000


def test_a_gate_without_items_has_no_accuracy() -> None:
    gate = gate_response(replace(SUMMARY, items=0, base_correct=0, adapter_correct=0))
    assert (gate.base.accuracy, gate.adapter.accuracy) == (None, None)


def test_a_verdict_says_its_rule_and_what_so_few_items_cannot_show() -> None:
    gate = gate_response(replace(SUMMARY, comparisons=(BASE, PRODUCTION)))
    assert gate.rule == (
        "block: a drop above 10 points that chance does not explain (exact one-sided McNemar "
        "test, Holm over 2 comparisons, p < 0.05); pass: such a drop is ruled out at 95 %; else "
        "inconclusive"
    )
    assert gate.power == (
        "249 items show a drop of 4.8 points or more in 4 of 5 cases; a drop of 2 points needs "
        "about 1,417 items"
    )
    assert [result.against for result in gate.comparisons] == ["base model", "ft:smol:acme::1"]
    assert (gate.comparisons[0].drop_shown, gate.comparisons[0].drop_ruled_out) == (0.048, 0.038)
    assert gate.comparisons[0].items_for_two_points == 1_417


def test_measures_are_shown_with_their_gain_and_which_one_decides() -> None:
    first = MeasureResult(
        kind="token_f1",
        verdict="pass",
        rows=40,
        base_ppm=250_000,
        adapter_ppm=500_000,
        low_ppm=200_000,
        high_ppm=300_000,
        gain_min_ppm=50_000,
    )
    second = replace(first, kind="regex", base_ppm=0, verdict="inconclusive")
    shown = gate_response(replace(SUMMARY, measures=(first, second))).measures
    assert [(result.measure, result.decides) for result in shown] == [
        ("token_f1", True),
        ("regex", False),
    ]
    assert (shown[0].gain, shown[1].gain) == (1.0, None), "relative to 0 there is none"
    assert (shown[0].low, shown[0].high, shown[0].gain_wanted) == (0.2, 0.3, 0.05)
    assert gate_response(SUMMARY).measures == []


def test_suggestions_are_shown_with_their_figures() -> None:
    lower = suggesting("learning_rate_lower", learning_rate_ppb=200_000, to_ppb=100_000)
    cut = suggesting("answers_shorten", share_ppm=250_000, rows=40)
    shown = gate_response(replace(SUMMARY, suggestions=(lower, cut))).suggestions
    assert shown[0].startswith("Lower the learning rate, which was 0.0002: try 0.0001")
    assert "25 % of 40 answers were cut" in shown[1]


def test_a_verdict_of_a_look_says_at_which_and_how_many_items() -> None:
    arc = replace(BASE, benchmark="arc", items=1_000)
    looked = replace(
        SUMMARY, comparisons=(BASE, PRODUCTION, arc), look=1, looks_ppm=(500_000, 1_000_000)
    )
    gate = gate_response(looked)
    assert look_words(gate.look) == (
        "decided at look 1 of 2, after 1,249 items (50 % of those of benchmarks)"
    )
    assert "2 looks share the 0.05" in (gate.rule or "")
    assert gate_response(SUMMARY).look is None


def test_one_comparison_needs_no_correction() -> None:
    assert "Holm" not in (rule_words((BASE,)) or "")


def test_a_verdict_of_before_says_no_rule() -> None:
    gate = gate_response(SUMMARY)
    assert (gate.rule, gate.power, gate.comparisons) == (None, None, [])
    assert power_words((replace(BASE, items=0, worse=0, better=0),)) is None


def test_first_hour2_u11_what_does_not_count_towards_the_verdict_says_so() -> None:
    """A fall of 2.1 %, where 5 are wanted, stood beside "pass" without a word."""
    below = judging("gain_below", gain_ppm=21_000, gain_min_ppm=50_000)
    weak = replace(SUMMARY, reasons=(below,), policy=GatePolicy())
    assert gate_response(weak).reasons[0] == (
        "the loss on your own validation rows fell by 2.1 %, and 5 % are wanted (does not count "
        "towards the verdict)"
    )
    blocks = replace(weak, policy=GatePolicy(blocking=("holdout",)))
    assert not gate_response(blocks).reasons[0].endswith("verdict)")


def test_first_hour2_u17_skills_and_own_task_are_two_words() -> None:
    still = replace(SUMMARY, base_loss_ppm=690_000, adapter_loss_ppm=680_000)
    shown = gate_response(still)
    assert (shown.verdict, shown.own_task) == (SUMMARY.verdict, "not learnt")
