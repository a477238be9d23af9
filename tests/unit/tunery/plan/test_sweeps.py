"""Configurations of a sweep: all of a grid, seeded draws, rungs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunery.plan.sweeps import (
    RUNGS_MAX,
    draws,
    grid,
    grid_size,
    groups,
    ranked,
    rung_steps,
    survivors,
)


def test_a_grid_has_all_combinations() -> None:
    parameters: dict[str, list[object]] = {"rank": [4, 8], "scheduler": ["linear", "cosine"]}
    assert grid(parameters) == [
        {"rank": 4, "scheduler": "linear"},
        {"rank": 4, "scheduler": "cosine"},
        {"rank": 8, "scheduler": "linear"},
        {"rank": 8, "scheduler": "cosine"},
    ]
    assert grid_size(parameters) == 4


@given(st.integers(0, 1_000), st.sampled_from(["linear", "log"]))
def test_draws_stay_in_their_ranges_and_repeat(seed: int, scale: str) -> None:
    parameters = {
        "rank": {"min": 4, "max": 64, "scale": scale},
        "learning_rate": {"min": 1e-5, "max": 1e-3, "scale": scale},
        "scheduler": ["linear", "cosine"],
    }
    chosen = draws(parameters, 5, seed)
    assert chosen == draws(parameters, 5, seed)
    for values in chosen:
        assert isinstance(values["rank"], int)
        assert 4 <= values["rank"] <= 64
        assert 1e-5 <= values["learning_rate"] <= 1e-3
        assert values["scheduler"] in ("linear", "cosine")


@pytest.mark.parametrize(
    ("first", "last", "factor", "steps"),
    [(10, 40, 2, (10, 20, 40)), (10, 100, 3, (10, 30, 90, 100)), (10, 10, 3, (10,))],
)
def test_rungs_grow_to_the_last_one(
    first: int, last: int, factor: int, steps: tuple[int, ...]
) -> None:
    assert rung_steps(first, last, factor) == steps


def test_rungs_and_survivors_have_bounds() -> None:
    assert len(rung_steps(1, 10**6, 2)) == RUNGS_MAX
    assert survivors(9, 3, 3) == (3, 1)
    assert survivors(2, 4, 3) == (1, 1, 1)
    assert survivors(4, 1, 2) == ()


def test_trials_are_ranked_by_their_loss() -> None:
    assert ranked({0: 5, 1: None, 2: 3, 3: 3}) == [2, 3, 0, 1]


@given(st.integers(0, 64), st.integers(1, 8))
def test_groups_are_few_about_as_large_and_have_each_member_once(count: int, most: int) -> None:
    members = list(range(count))
    grouped = groups(members, most)
    assert [member for group in grouped for member in group] == members
    assert len(grouped) == -(-count // most)
    sizes = {len(group) for group in grouped}
    assert not sizes or max(sizes) - min(sizes) <= 1
