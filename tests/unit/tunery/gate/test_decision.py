"""The decision on simulated adapters: how often it blocks one that lost nothing, or 4 points.

ITEMS is the size of ARC-Challenge. A tenth or a fifth of the answers differ, as between a base
model and its adapter; there are two comparisons (base model and production) and three looks.
"""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.units import PPM
from tunery.gate.decision import Decision, Differences, Pairs, Rule, adjust, decide, overall
from tunery.gate.looks import items_at

ITEMS = 1_172
LOOKS = (400 / ITEMS, 800 / ITEMS, 1.0)
TRIALS = 300
PLANNED = (250_000, 500_000, 1_000_000)
STRICT = Rule(drop_max=0.02)


def draw_pairs(draw: Random, share: float, drop: float) -> list[Pairs]:
    """Counts at each look of an adapter with this true drop, of whose answers `share` differ."""
    seen, looks = [0, 0], []
    worse_below = (share + drop) / 2
    for at in range(1, ITEMS + 1):
        chance = draw.random()
        if chance < share:
            seen[chance >= worse_below] += 1
        if at in (400, 800, ITEMS):
            looks.append(Pairs(at, *seen))
    return looks


def blocks(seed: int, share: float, drop: float, rule: Rule) -> bool:
    """Whether any look blocks: the drop is against the base model; production is as the base."""
    draw = Random(seed)
    against_base, against_production = draw_pairs(draw, share, drop), draw_pairs(draw, share, 0)
    for look, pairs in enumerate(zip(against_base, against_production, strict=True), start=1):
        decision = overall(result.decision for result in decide(pairs, rule, LOOKS, look))
        if decision != "inconclusive":
            return decision == "block"
    return False


@pytest.mark.parametrize("share", [0.10, 0.20])
def test_an_adapter_that_lost_nothing_is_blocked_in_at_most_alpha_of_the_cases(
    share: float,
) -> None:
    """Without an allowance, which would hide errors: whatever is worse at all and shown blocks."""
    rule = Rule(drop_max=0.0, alpha=0.05)
    blocked = sum(blocks(seed, share, 0.0, rule) for seed in range(TRIALS))
    assert blocked / TRIALS <= 0.05


@pytest.mark.parametrize("share", [0.10, 0.20])
def test_a_drop_of_four_points_is_caught_in_four_of_five_cases(share: float) -> None:
    caught = sum(blocks(seed, share, 0.04, STRICT) for seed in range(TRIALS))
    assert caught / TRIALS >= 0.80


def draw_tasks(seed: int, drops: tuple[float, ...]) -> tuple[Decision, ...]:
    """The decisions on several tasks at the last look; each has its own questions and true drop."""
    draw = Random(seed)
    tasks = [draw_pairs(draw, 0.10, drop)[-1] for drop in drops]
    rule = Rule(drop_max=0.0) if not any(drops) else STRICT
    return tuple(result.decision for result in decide(tasks, rule))


def test_an_adapter_that_lost_nothing_in_four_tasks_is_blocked_in_at_most_alpha_of_the_cases() -> (
    None
):
    """Four tests at the level of 5 % each would block nearly a fifth of such adapters."""
    decided = [draw_tasks(seed, (0.0, 0.0, 0.0, 0.0)) for seed in range(TRIALS)]
    assert sum(overall(decisions) == "block" for decisions in decided) / TRIALS <= 0.05


@pytest.mark.parametrize("drops", [(0.04, 0, 0, 0), (0, 0, 0, 0.04), (0.04, 0.04, 0.04, 0.04)])
def test_a_drop_of_four_points_in_one_of_four_tasks_is_caught(drops: tuple[float, ...]) -> None:
    decided = [draw_tasks(seed, drops) for seed in range(TRIALS)]
    assert sum(overall(decisions) == "block" for decisions in decided) / TRIALS >= 0.80


def draw_looks(seed: int, drop: float) -> list[tuple[Pairs, ...]]:
    """Bundled questions and two benchmarks, as the plan asks them at each look."""
    draw, sizes = Random(seed), (249, 1_500, 4_000)
    asked = [[items_at(share, size) for share in PLANNED] for size in sizes]
    answers = [[draw.random() for _ in range(size)] for size in sizes]
    worse, better = (0.10 + drop) / 2, 0.10

    def pairs(chances: list[float]) -> Pairs:
        lost = sum(chance < worse for chance in chances)
        return Pairs(len(chances), lost, sum(chance < better for chance in chances) - lost)

    return [
        tuple(pairs(chances[: upto[look]]) for chances, upto in zip(answers, asked, strict=True))
        for look in range(len(PLANNED))
    ]


def verdict_by_looks(seed: int, drop: float, rule: Rule) -> tuple[Decision, int]:
    """The verdict of a gate that stops as soon as a look decides, and which look that was."""
    fractions = tuple(share / PPM for share in PLANNED)
    decision: Decision = "inconclusive"
    for look, pairs in enumerate(draw_looks(seed, drop), start=1):
        decision = overall(result.decision for result in decide(pairs, rule, fractions, look))
        if decision != "inconclusive":
            return decision, look
    return decision, len(PLANNED)


def test_with_looks_of_different_benchmarks_a_null_adapter_is_blocked_in_at_most_alpha() -> None:
    """Benchmarks that are ahead of the plan, and bundled questions that are asked at once."""
    rule = Rule(drop_max=0.0)
    blocked = sum(verdict_by_looks(seed, 0.0, rule)[0] == "block" for seed in range(TRIALS))
    assert blocked / TRIALS <= 0.05


def test_a_drop_of_six_points_is_caught_before_all_items_are_asked() -> None:
    decided = [verdict_by_looks(seed, 0.06, STRICT) for seed in range(50)]
    assert all(verdict == "block" for verdict, _ in decided)
    assert sum(look < len(PLANNED) for _, look in decided) >= 45


def test_several_comparisons_need_smaller_p_values_to_block() -> None:
    pairs = Pairs(300, 16, 6)
    (alone,) = decide((pairs,), STRICT)
    first, _ = decide((pairs, Pairs(300, 0, 0)), STRICT)
    assert (alone.decision, first.decision) == ("block", "inconclusive")
    assert first.p_adjusted == pytest.approx(2 * alone.p)
    assert first.smallest > alone.smallest


def test_no_items_decide_nothing() -> None:
    (result,) = decide((Pairs(0, 0, 0),), STRICT)
    assert (result.decision, result.bound) == ("inconclusive", 1.0)


@pytest.mark.parametrize(
    ("decisions", "together"),
    [
        (("pass", "pass"), "pass"),
        (("pass", "block"), "block"),
        (("pass", "inconclusive"), "inconclusive"),
        (("inconclusive", "block"), "block"),
        ((), "inconclusive"),
    ],
)
def test_all_comparisons_have_to_pass_and_one_blocks(
    decisions: tuple[Decision, ...], together: str
) -> None:
    assert overall(decisions) == together


def draw_differences(seed: int, drop: float) -> Differences:
    """Shares of the likelihood: 100 questions, each asked twice, which move by 0.15 together."""
    draw = Random(seed)
    moved = [draw.gauss(-drop, 0.15) for _ in range(100)]
    values = tuple(min(1.0, max(-1.0, moved[at // 2] + draw.gauss(0, 0.02))) for at in range(200))
    return Differences(values, tuple(str(at // 2) for at in range(200)))


def blocks_shares(seed: int, drop: float) -> bool:
    (result,) = decide([draw_differences(seed, drop)], Rule(drop_max=0.0, alpha=0.05))
    return result.decision == "block"


def test_shares_that_did_not_fall_block_in_at_most_alpha_of_the_cases() -> None:
    """Two standard deviations above 5 % of 40; what fell by 6 points is caught."""
    assert sum(blocks_shares(seed, 0.0) for seed in range(40)) <= 4
    assert sum(blocks_shares(seed, 0.06) for seed in range(10)) >= 8


def test_equal_shares_pass() -> None:
    same = Differences((0.0,) * 300, tuple(map(str, range(300))))
    (result,) = decide([same], STRICT)
    assert (result.decision, result.p, result.bound) == ("pass", 1.0, 0.0)


def test_holm_known_values() -> None:
    """The example of R's manual: p.adjust(c(0.01, 0.04, 0.03, 0.005), "holm")."""
    assert adjust((0.01, 0.04, 0.03, 0.005)) == pytest.approx((0.03, 0.06, 0.06, 0.02))
    assert adjust(()) == ()
    assert adjust((0.2,)) == (0.2,)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_keeps_the_order_and_lies_between_p_and_bonferroni(p_values: list[float]) -> None:
    adjusted = adjust(p_values)
    for p, after in zip(p_values, adjusted, strict=True):
        assert p <= after <= min(1.0, max(p_values) if after > len(p_values) * p else 1.0)
    ranked = sorted(zip(p_values, adjusted, strict=True))
    assert [after for _, after in ranked] == sorted(adjusted)
