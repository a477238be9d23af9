"""Percentiles as the page of figures shows them, and answers that are no measurements."""

import json

import httpx
import pytest

from bench.measures import ok, percentile, print_figures


@pytest.mark.parametrize(("percent", "expected"), [(1, 1.99), (50, 50.5), (99, 99.01)])
def test_a_percentile_lies_between_its_neighbours(percent: int, expected: float) -> None:
    assert percentile([float(number) for number in range(100, 0, -1)], percent) == expected


def test_of_equal_values_every_percentile_is_the_value() -> None:
    assert [percentile([7.123, 7.123], percent) for percent in (1, 50, 99)] == [7.12] * 3


def test_a_refusal_ends_the_bench_and_names_its_address() -> None:
    request = httpx.Request("GET", "http://api/v1/jobs")
    assert ok(httpx.Response(200, json=[1], request=request)) == [1]
    with pytest.raises(RuntimeError, match=r"http://api/v1/jobs: 429 slow down"):
        ok(httpx.Response(429, text="slow down", request=request))


def test_figures_are_lines_with_their_goal_or_one_json_object(
    capsys: pytest.CaptureFixture[str],
) -> None:
    figures = {"rows": 1234.5, "seconds": 0.126}
    print_figures(figures, as_json=False, goal="seconds <= 1")
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines[:2]] == [["rows", "1,234.50"], ["seconds", "0.13"]]
    assert lines[2:] == ["goal: seconds <= 1"]
    print_figures(figures, as_json=True, goal="seconds <= 1")
    assert json.loads(capsys.readouterr().out) == figures
