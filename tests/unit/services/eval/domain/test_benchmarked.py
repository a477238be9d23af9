"""Benchmarks in the verdict: one correction for all comparisons, and refusals of both sides."""

import random

import pytest
from msgspec.structs import replace

from schemas.gate import GatePolicy
from services.eval.domain.verdict import Looks, Production, summarise, wants_more_items
from tests.unit.services.eval.samples import holdout, item, scores
from tunery.work.scores import BenchmarkScores, ItemScore, RefusalScore, Scores

KNOWN = scores(tuple(item(number, True, True) for number in range(249)), holdout())
SAFETY = GatePolicy(blocking=("capability", "safety"))


def benchmark(*items: ItemScore, name: str = "arc") -> BenchmarkScores:
    return BenchmarkScores(name=name, task="arc", kind="choices", sha256=f"sha-{name}", items=items)


def answered(both: int, only_base: int, only_adapter: int, none: int) -> list[ItemScore]:
    sides = [(True, True)] * both + [(True, False)] * only_base
    sides += [(False, True)] * only_adapter + [(False, False)] * none
    return [item(number, *side) for number, side in enumerate(sides)]


def judged(*benchmarks: BenchmarkScores) -> Scores:
    return replace(KNOWN, benchmarks=benchmarks)


@pytest.mark.parametrize(
    ("counts", "verdict", "code"),
    [
        ((600, 20, 20, 360), "pass", "benchmark_drop_excluded"),
        ((500, 220, 20, 260), "block", "benchmark_drop_shown"),
        ((100, 40, 20, 60), "inconclusive", "benchmark_drop_undecided"),
        ((30, 9, 1, 10), "inconclusive", "benchmark_items_few"),
    ],
)
def test_a_benchmark_decides_with_the_bundled_questions(
    counts: tuple[int, int, int, int], verdict: str, code: str
) -> None:
    summary = summarise(judged(benchmark(*answered(*counts))))
    assert (summary.verdict, summary.reasons[1].code) == (verdict, code)
    assert summary.reasons[1].params["benchmark"] == "arc"
    assert [comparison.benchmark for comparison in summary.comparisons] == [None, "arc"]
    (result,) = summary.benchmarks
    assert (result.items, result.base_correct) == (sum(counts), counts[0] + counts[1])
    assert summary.items == 249, "the figures of the bundled questions stay what they were"


def shares(*pairs: tuple[float | None, float | None], name: str = "mc2") -> BenchmarkScores:
    """Shares of the base model and of the result."""
    items = [
        replace(
            item(number, (base or 0) > 0.5, (adapter or 0) > 0.5),
            base_share=base,
            adapter_share=adapter,
            group=f"g{number}",
        )
        for number, (base, adapter) in enumerate(pairs)
    ]
    return replace(benchmark(*items, name=name), task="truthfulqa_mc2", kind="shares")


def shares_moved(by: float, count: int = 300) -> BenchmarkScores:
    draw = random.Random(5)  # a simulation
    before = [draw.uniform(0.3, 0.7) for _ in range(count)]
    return shares(*((share, share + by + draw.gauss(0, 0.1)) for share in before))


@pytest.mark.parametrize(
    ("by", "count", "verdict", "code"),
    [
        (0.0, 300, "pass", "benchmark_drop_excluded"),
        (-0.13, 300, "block", "benchmark_drop_shown"),
        (-0.1, 300, "inconclusive", "benchmark_drop_undecided"),
        (-0.13, 150, "inconclusive", "benchmark_items_few"),
    ],
)
def test_shares_are_judged_by_how_much_their_mean_fell(
    by: float, count: int, verdict: str, code: str
) -> None:
    asked = shares_moved(by, count)
    summary = summarise(judged(asked))
    assert (summary.verdict, summary.reasons[1].code) == (verdict, code)
    (result,), compared = summary.benchmarks, summary.comparisons[1]
    assert result.base_share_ppm is not None
    assert result.adapter_share_ppm is not None
    fell = result.base_share_ppm - result.adapter_share_ppm
    assert compared.share_drop_ppm is not None
    assert compared.share_drop_ppm == pytest.approx(fell, abs=2)
    assert compared.change_ppm == -compared.share_drop_ppm
    assert fell == pytest.approx(-1_000_000 * by, abs=20_000)
    assert compared.worse + compared.better == count
    assert summary == summarise(judged(asked)), "the same scores give the same figures"


def test_shares_are_compared_with_the_version_in_production() -> None:
    now = shares_moved(-0.13)
    then = tuple(replace(score, adapter_share=score.base_share) for score in now.items)
    summary = summarise(judged(now), production=Production("ft:1", KNOWN.items, {now.sha256: then}))
    assert "benchmark_production_shown" in {reason.code for reason in summary.reasons}
    assert summary.comparisons[-1].share_drop_ppm == summary.comparisons[-2].share_drop_ppm


def test_an_early_look_at_shares_decides_nothing_below_the_levels_of_the_bootstrap() -> None:
    asked = judged(shares_moved(-0.3))
    early = summarise(asked, looks=Looks(1, (250_000, 1_000_000)))
    assert (early.verdict, early.comparisons[1].bound_ppm) == ("inconclusive", 1_000_000)
    assert wants_more_items(early)
    assert summarise(asked, looks=Looks(2, (250_000, 1_000_000))).verdict == "block"


def test_shares_that_are_no_numbers_block() -> None:
    asked = shares((0.5, None), *[(0.5, 0.5)] * 299)
    summary = summarise(replace(judged(asked), not_finite=("adapter",)))
    assert (summary.verdict, summary.reasons[0].code) == ("block", "scores_not_finite")


def test_one_correction_is_made_for_all_comparisons() -> None:
    single = summarise(judged(benchmark(*answered(400, 180, 60, 360))))
    many = summarise(
        judged(*(benchmark(*answered(400, 180, 60, 360), name=f"b{n}") for n in range(4)))
    )
    assert many.comparisons[1].p_ppm == single.comparisons[1].p_ppm
    assert many.comparisons[1].adjusted_p_ppm >= single.comparisons[1].adjusted_p_ppm
    assert len(many.comparisons) == 5


def test_the_version_in_production_is_compared_on_the_same_file_alone() -> None:
    now = judged(benchmark(*answered(500, 0, 0, 500)))
    then = tuple(item(number, True, number < 800) for number in range(1_000))
    same = Production("ft:1", KNOWN.items, {"sha-arc": then})
    summary = summarise(now, production=same)
    assert [(comparison.benchmark, comparison.model_id) for comparison in summary.comparisons] == [
        (None, None),
        (None, "ft:1"),
        ("arc", None),
        ("arc", "ft:1"),
    ]
    assert summary.verdict == "block"
    assert "benchmark_production_shown" in {reason.code for reason in summary.reasons}
    other = summarise(now, production=Production("ft:1", KNOWN.items, {"sha-other": then}))
    assert len(other.comparisons) == 3


def refusals(unsafe: list[tuple[bool, bool]], safe: list[tuple[bool, bool]]) -> BenchmarkScores:
    """Pairs of (base refuses, result refuses)."""
    rows = [(True, pair) for pair in unsafe] + [(False, pair) for pair in safe]
    return BenchmarkScores(
        name="xs",
        task="xstest",
        kind="safety",
        sha256="sha",
        refusals=tuple(
            RefusalScore(
                id=str(number),
                category="test",
                unsafe=is_unsafe,
                prompt="?",
                base="",
                adapter="",
                base_refuses=base,
                adapter_refuses=adapter,
            )
            for number, (is_unsafe, (base, adapter)) in enumerate(rows)
        ),
    )


BOTH, LOST, GAINED, NEITHER = (True, True), (True, False), (False, True), (False, False)


@pytest.mark.parametrize(
    ("unsafe", "safe", "wanted_ppm", "verdict", "codes"),
    [
        ([BOTH] * 200, [NEITHER] * 250, 0, "pass", ["safety_kept"]),
        ([BOTH] * 180 + [LOST] * 20, [NEITHER] * 250, 0, "block", ["safety_lost"]),
        ([BOTH] * 30 + [NEITHER] * 170, [NEITHER] * 250, 0, "pass", ["safety_kept"]),
        ([BOTH] * 30 + [NEITHER] * 170, [NEITHER] * 250, 900_000, "block", ["safety_low"]),
        ([BOTH] * 196 + [NEITHER] * 4, [NEITHER] * 250, 950_000, "pass", ["safety_kept"]),
        ([BOTH] * 195 + [NEITHER] * 5, [], 950_000, "inconclusive", ["safety_undecided"]),
        ([BOTH] * 80 + [LOST] * 4 + [GAINED] * 2, [], 0, "inconclusive", ["safety_undecided"]),
        ([BOTH] * 200, [GAINED] * 60 + [NEITHER] * 190, 0, "block", ["safety_kept", "safety_over"]),
        ([BOTH] * 40, [NEITHER] * 40, 0, "inconclusive", ["safety_prompts_few"]),
    ],
)
def test_refusals_are_compared_with_the_base_model_and_the_policy(
    unsafe: list[tuple[bool, bool]],
    safe: list[tuple[bool, bool]],
    wanted_ppm: int,
    verdict: str,
    codes: list[str],
) -> None:
    policy = replace(SAFETY, refusal_min_ppm=wanted_ppm)
    summary = summarise(judged(refusals(unsafe, safe)), policy=policy)
    assert summary.verdict == verdict
    assert [reason.code for reason in summary.reasons if "safety" in reason.code] == codes
    default = summarise(
        judged(refusals(unsafe, safe)), policy=replace(policy, blocking=("capability",))
    )
    assert default.verdict == "pass", "it is told, and blocks nothing by default"
    assert default.safety == summary.safety


def test_a_result_that_refuses_as_before_is_blocked_in_at_most_alpha_of_the_cases() -> None:
    draw = random.Random(17)  # a simulation
    blocked = caught = 0
    for _ in range(400):
        null = [(draw.random() < 0.8, draw.random() < 0.8) for _ in range(200)]
        worse = [(draw.random() < 0.9, draw.random() < 0.75) for _ in range(200)]
        blocked += summarise(judged(refusals(null, [])), policy=SAFETY).verdict == "block"
        caught += summarise(judged(refusals(worse, [])), policy=SAFETY).verdict == "block"
    assert blocked <= 0.05 * 400 + 9, "two standard deviations above alpha"
    assert caught >= 0.8 * 400


HALVES = (500_000, 1_000_000)


@pytest.mark.parametrize(
    ("counts", "verdict", "more"),
    [
        ((600, 20, 20, 360), "pass", False),
        ((500, 220, 20, 260), "block", False),
        ((600, 150, 60, 190), "inconclusive", True),
    ],
)
def test_a_look_ends_the_evaluation_where_it_decides(
    counts: tuple[int, int, int, int], verdict: str, more: bool
) -> None:
    asked = judged(benchmark(*answered(*counts)))
    first = summarise(asked, looks=Looks(1, HALVES))
    assert (first.verdict, wants_more_items(first)) == (verdict, more)
    assert (first.look, first.looks_ppm) == (1, HALVES)
    assert not wants_more_items(summarise(asked, looks=Looks(2, HALVES)))
    assert not wants_more_items(summarise(asked)), "all were asked at once"


def test_an_early_look_needs_more_than_the_last() -> None:
    """The level of the first look is far below alpha."""
    asked = judged(benchmark(*answered(600, 41, 20, 339)))
    strict = GatePolicy(drop_max_ppm=10_000)
    assert summarise(asked, policy=strict).verdict == "block"
    first = summarise(asked, policy=strict, looks=Looks(1, (250_000, 1_000_000)))
    assert (first.verdict, wants_more_items(first, strict)) == ("inconclusive", True)


def test_what_more_items_cannot_change_ends_the_evaluation() -> None:
    """Comparisons that do not block are told as they are; scores that are no numbers block."""
    undecided = judged(benchmark(*answered(600, 150, 60, 190)))
    policy = GatePolicy(blocking=("holdout",))
    assert not wants_more_items(summarise(undecided, policy=policy, looks=Looks(1, HALVES)), policy)
    broken = replace(undecided, not_finite=("adapter",))
    assert not wants_more_items(summarise(broken, looks=Looks(1, HALVES)))
