"""A short job in one process and in two: what is printed of the seconds."""

from bench.verdict import AGENTS, Times, figures
from tunery.local.stack import WARM_NODE

ONE_PROCESS, TWO_PROCESSES = (30.0, 20.0, 21.04), (26.0, 25.0, 60.0)


def test_figures_are_medians_and_what_one_process_saves() -> None:
    seconds = {"one": ONE_PROCESS, "two": TWO_PROCESSES}
    measured = figures(
        {way: [Times(each, each / 10) for each in of_way] for way, of_way in seconds.items()}
    )
    assert measured == {"one_s": 21.0, "two_s": 26.0, "saved_s": 5.0, "first_step_s": 2.1}


def test_both_ways_have_the_same_node_and_one_of_them_has_loaded_its_libraries() -> None:
    assert AGENTS["one"].env == {**AGENTS["two"].env, **WARM_NODE}
    assert AGENTS["one"].principal == AGENTS["two"].principal
