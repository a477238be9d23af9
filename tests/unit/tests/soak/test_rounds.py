"""The rounds of a soak: drawn by a seed, with every kind of fault among them."""

from tests.soak.failpoints import CLAIM_POINTS, POINTS
from tests.soak.rounds import draw_rounds
from tests.soak.run import spread


def test_the_same_seed_gives_the_same_rounds_and_fewer_are_the_first_of_more() -> None:
    assert draw_rounds(50, 7) == draw_rounds(50, 7)
    assert draw_rounds(50, 7)[:20] == draw_rounds(20, 7)
    assert draw_rounds(50, 7) != draw_rounds(50, 8)


def test_five_rounds_have_each_class_of_fault() -> None:
    for seed in range(20):
        kinds = sorted(round_.kind for round_ in draw_rounds(5, seed))
        assert kinds == ["broker", "database", "failpoint", "kill", "zombie"]


def test_fifty_rounds_exit_at_every_failpoint() -> None:
    for seed in range(20):
        reached = {round_.point for round_ in draw_rounds(50, seed)} - {""}
        assert reached == {*POINTS, *CLAIM_POINTS}


def test_a_spread_names_ranks_that_were_measured() -> None:
    assert spread([]) == {}
    assert spread([7]) == {"n": 1, "p50": 7, "p99": 7, "max": 7}
    assert spread(range(200, 0, -1)) == {"n": 200, "p50": 100, "p99": 198, "max": 200}
