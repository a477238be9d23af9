"""The jobs of the bench of estimates, and what it says of them."""

import json

import pytest

from bench.estimates import SHAPES, TEACHERS, Shape, figures_of, rows_of
from tunery.plan.durations import SAMPLES_MIN


def test_twenty_different_jobs_and_as_many_teachers_as_the_service_needs() -> None:
    assert len({*SHAPES}) == len(SHAPES) == 20
    assert TEACHERS == SAMPLES_MIN
    estimated = SHAPES[TEACHERS:]
    assert {shape.base for shape in estimated} == {"small", "larger"}
    assert {shape.method for shape in estimated} == {"supervised", "dpo"}
    assert {bool(shape.held_out) for shape in estimated} == {True, False}
    assert {shape.packing for shape in estimated} == {True, False}


@pytest.mark.parametrize("method", ["supervised", "dpo"])
def test_rows_of_training_and_validation_are_all_different(method: str) -> None:
    shape = Shape("small", 30, 5, 1, method=method)
    lines = [*rows_of(shape, 1, 30).splitlines(), *rows_of(shape, 1, 10, first=30).splitlines()]
    assert len({*lines}) == 40
    assert ("preferred_output" in json.loads(lines[0])) == (method == "dpo")


def test_figures_are_of_the_jobs_that_were_estimated_from_history() -> None:
    ratios = [9.0] * TEACHERS + [1.0 + number / 10 for number in range(11)]
    rows = [
        {"ratio": ratio, "teaches": number < TEACHERS, "within_hold": True}
        for number, ratio in enumerate(ratios)
    ]
    figures = figures_of(rows)
    assert (figures["jobs"], figures["estimated_jobs"], figures["within_hold"]) == (19, 11, 19)
    assert (figures["ratio_p50"], figures["ratio_p90"], figures["ratio_max"]) == (1.5, 1.9, 2.0)
    assert "ratio_p90" not in figures_of(rows[:TEACHERS])
