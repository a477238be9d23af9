"""The gate: its verdict on scores of base, adapter and the version in production."""

from random import Random

import pytest
from msgspec.structs import replace

from schemas.envelope import Reason
from schemas.gate import GatePolicy, GateStage
from schemas.model import Verdict
from schemas.reasons import judging
from services.eval.domain.verdict import DROP_MAX_PPM, Production, compare, judge, summarise
from tests.unit.services.eval.samples import holdout, item, scores
from tunery.gate.paired import drop_upper_bound
from tunery.work.scores import ItemScore


def items(both: int, worse: int, better: int, neither: int) -> tuple[ItemScore, ...]:
    pairs = [(True, True)] * both + [(True, False)] * worse
    pairs += [(False, True)] * better + [(False, False)] * neither
    return tuple(item(number, base, adapter) for number, (base, adapter) in enumerate(pairs))


def verdict_of(
    pairs: tuple[ItemScore, ...], drop_max_ppm: int = DROP_MAX_PPM
) -> tuple[Verdict, tuple[Reason, ...]]:
    return judge(compare(pairs, drop_max_ppm))


@pytest.mark.parametrize("count", [0, 50, 400])
@pytest.mark.parametrize("sides", [("adapter",), ("base", "adapter"), ("base",)])
def test_training_m9_scores_that_are_not_finite_block(sides: tuple[str, ...], count: int) -> None:
    """ComparisonResult M9: an adapter that gives NaN was judged by chance, or not at all."""
    answered = items(count, 0, 0, 0)
    sound = scores(answered, holdout())
    assert summarise(sound).verdict == ("pass" if count >= 200 else "inconclusive")
    summary = summarise(replace(sound, not_finite=sides))
    assert summary.verdict == "block"
    assert summary.reasons == (judging("scores_not_finite", sides=", ".join(sides)),)


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
    assert verdict_of(items(both, worse, better, neither))[0] == verdict


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
    outcome, reasons = verdict_of(pairs, drop_max_ppm)
    assert outcome == verdict
    if verdict == "block":
        assert reasons[0].params["drop_max_ppm"] == 20_000


def simulated(seed: int, drop: float) -> str:
    """Verdict on an adapter whose answers flip on 10 % of the items, with this true drop."""
    draw = Random(seed)
    pairs = []
    for i in range(220):
        base, u = draw.random() < 0.5 + drop, draw.random()
        flip = u < (0.10 + 2 * drop if base else 0.10)
        pairs.append(item(i, base, base ^ flip))
    return verdict_of(tuple(pairs))[0]


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


@pytest.mark.parametrize("after", [0.981, 1.0])
def test_first_hour_15_the_verdict_names_an_adapter_that_learnt_nothing(after: float) -> None:
    """Such an adapter passed like one that had learnt: the tenant's own rows were ignored."""
    summary = summarise(scores(items(110, 5, 5, 100), holdout(1.0, after)))
    assert (summary.verdict, summary.reasons[-1].code) == ("pass", "validation_loss_same")
    learnt = summarise(scores(items(110, 5, 5, 100), holdout(1.0, 0.5)))
    assert [reason.code for reason in learnt.reasons] == ["drop_excluded"]


def test_first_hour_15_a_verdict_keeps_the_bound_that_it_rests_on() -> None:
    (reason,) = verdict_of(items(110, 5, 5, 100), 50_000)[1]
    bound_ppm = round(1_000_000 * drop_upper_bound(5, 5, 220))
    assert (reason.params["bound_ppm"], reason.params["drop_max_ppm"]) == (bound_ppm, 50_000)
    assert bound_ppm < 50_000


def test_losses_without_validation_rows_are_minus_one() -> None:
    summary = summarise(scores(items(110, 5, 5, 100), holdout(None, None)))
    assert summary.base_loss_ppm == -1


def production(right: int, wrong: int) -> Production:
    """A version that answered the first `right` items well, of as many as `items` makes."""
    answered = tuple(item(number, True, number < right) for number in range(right + wrong))
    return Production("ft:smol:acme::1", answered)


def test_a_drop_against_production_blocks_what_is_no_worse_than_the_base_model() -> None:
    """The adapter is as good as the base model, and the version in production is much better."""
    as_the_base = items(110, 5, 5, 100)
    summary = summarise(scores(as_the_base, holdout()), None, production(180, 40))
    against_base, against_production = summary.comparisons
    assert (against_base.verdict, against_base.model_id) == ("pass", None)
    assert against_production.model_id == "ft:smol:acme::1"
    assert (against_production.verdict, against_production.items) == ("block", 220)
    assert summary.verdict == "block"
    assert [reason.code for reason in summary.reasons] == ["drop_excluded", "production_drop_shown"]
    assert summary.reasons[1].params["model_id"] == "ft:smol:acme::1"


def test_what_both_comparisons_allow_passes() -> None:
    summary = summarise(scores(items(110, 5, 5, 100), holdout()), None, production(115, 105))
    assert [result.verdict for result in summary.comparisons] == ["pass", "pass"]
    assert summary.verdict == "pass"


def test_only_items_that_both_versions_answered_are_compared() -> None:
    summary = summarise(scores(items(110, 5, 5, 100), holdout()), None, production(60, 40))
    assert [result.items for result in summary.comparisons] == [220, 100]
    assert summary.verdict == "inconclusive"
    assert summary.reasons[1] == judging("items_too_few", items=100, limit=200)


def test_a_comparison_says_what_so_few_items_cannot_show() -> None:
    (result,) = compare(items(110, 11, 11, 88), DROP_MAX_PPM)
    assert result.smallest_ppm == pytest.approx(54_000, rel=0.02)
    assert (result.alpha_ppm, result.drop_max_ppm) == (50_000, DROP_MAX_PPM)


def test_a_policy_says_which_comparisons_block() -> None:
    worse = scores(items(80, 40, 5, 95), holdout())
    assert summarise(worse, None, None, GatePolicy(blocking=("production",))).verdict == "pass"
    advisory = summarise(worse, None, None, GatePolicy(blocking=()))
    assert (advisory.verdict, advisory.reasons[0].code) == ("pass", "drop_shown")
    broken = replace(worse, not_finite=("adapter",))
    assert summarise(broken, None, None, GatePolicy(blocking=())).verdict == "block"


def test_the_drop_that_a_job_allows_goes_before_the_policys() -> None:
    slightly = scores(items(100, 12, 0, 98), holdout())
    strict = GatePolicy(drop_max_ppm=20_000)
    assert summarise(slightly).verdict == "pass"
    assert summarise(slightly, None, None, strict).verdict == "block"
    assert summarise(slightly, 100_000, None, strict).verdict == "pass"


def test_a_stricter_alpha_blocks_less() -> None:
    pairs = scores(items(150, 22, 9, 39), holdout())
    assert summarise(pairs, 0).verdict == "block"
    assert summarise(pairs, 0, None, GatePolicy(alpha_ppm=1_000)).verdict == "inconclusive"


@pytest.mark.parametrize(
    ("loss", "blocking", "verdict", "gain_ppm"),
    [
        (0.9, ("holdout",), "pass", None),
        (0.96, ("holdout",), "block", 40_000),
        (0.96, ("capability",), "pass", 40_000),
    ],
)
def test_too_small_a_gain_is_reported_and_blocks_if_the_policy_says_so(
    loss: float, blocking: tuple[GateStage, ...], verdict: str, gain_ppm: int | None
) -> None:
    summary = summarise(
        scores(items(110, 5, 5, 100), holdout(1.0, loss)), None, None, GatePolicy(blocking=blocking)
    )
    assert (summary.verdict, summary.policy) == (verdict, GatePolicy(blocking=blocking))
    below = [reason for reason in summary.reasons if reason.code == "gain_below"]
    assert [reason.params["gain_ppm"] for reason in below] == ([gain_ppm] if gain_ppm else [])
