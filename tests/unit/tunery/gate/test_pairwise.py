"""Counts of pairs in both orders, and bounds beside published figures."""

import pytest

from tunery.gate.pairwise import qualify, sign_test, tally, wilson, win_rate_interval
from tunery.work.scores import JudgedPair


def pair(first: str, second: str, label: str = "") -> JudgedPair:
    return JudgedPair(number=1, choices=(first, second), label=label)


def test_what_wins_in_one_order_alone_is_a_tie() -> None:
    counts = tally(
        pair(first, second)
        for first, second in (
            ("A", "B"),
            ("B", "A"),
            ("A", "A"),
            ("tie", "tie"),
            ("A", "tie"),
            ("B", "B"),
            ("", "A"),
        )
    )
    assert (counts.a, counts.b, counts.ties) == (1, 1, 5)
    assert (counts.inconsistent, counts.unreadable) == (3, 1)
    assert (counts.first, counts.second) == (1, 1)


def test_a_share_of_196_in_200_is_the_first_whose_bound_is_95_percent() -> None:
    assert wilson(196, 200)[0] >= 0.95 > wilson(195, 200)[0]
    assert wilson(0, 0) == (0.0, 1.0)


def test_the_exact_interval_is_that_of_the_exact_test() -> None:
    assert sign_test(9, 1) == pytest.approx(11 / 1024)
    low, high = win_rate_interval(9, 1, 0.025)
    assert low == pytest.approx(0.5550, abs=1e-4)
    assert high == pytest.approx(0.9975, abs=1e-4)
    for wins in range(13):
        shown = sign_test(wins, 12 - wins) < 0.05
        assert (win_rate_interval(wins, 12 - wins, 0.05)[0] > 0.5) == shown
    assert win_rate_interval(0, 0, 0.05) == (0.0, 1.0)


def test_a_judge_qualifies_by_its_bound_and_not_by_its_order() -> None:
    good = [pair("A", "B", "a")] * 30
    assert qualify(good).is_met
    assert not qualify(good[:5] + [pair("B", "A", "a")] * 15).is_met
    assert not qualify(good + [pair("A", "A", "a")] * 10).is_met, "order decides 25 %"
    assert not qualify([]).is_met
