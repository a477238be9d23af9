"""A short job in one process and in two: what is printed of the seconds."""

from bench.verdict import AGENTS, figures


def test_figures_are_medians_and_what_one_process_saves() -> None:
    measured = figures({"one": [30.0, 20.0, 21.04], "two": [26.0, 25.0, 60.0]})
    assert measured == {"one_s": 21.0, "two_s": 26.0, "saved_s": 5.0}


def test_both_ways_have_the_same_node() -> None:
    assert AGENTS["one"].env == AGENTS["two"].env
    assert AGENTS["one"].principal == AGENTS["two"].principal
