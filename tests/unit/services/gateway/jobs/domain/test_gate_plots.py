"""Plots of the gate's report: well-formed SVG, whatever the numbers are."""

import re
from html.parser import HTMLParser

import pytest

from services.gateway.jobs.domain.gate_plots import bar_plot, interval_plot, scatter_plot


class Parts(HTMLParser):
    """The attributes of each element of one name."""

    def __init__(self, svg: str, name: str) -> None:
        super().__init__()
        self.name, self.attributes = name, list[dict[str, str | None]]()
        self.feed(svg)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == self.name:
            self.attributes.append(dict(attrs))


def parts(svg: str, name: str) -> list[dict[str, str]]:
    return [
        {key: value or "" for key, value in part.items()} for part in Parts(svg, name).attributes
    ]


def test_an_interval_lies_around_its_estimate_and_the_limit_is_drawn() -> None:
    svg = interval_plot([("base", -0.02, 0.01, 0.05)], 0.1, "loss")
    (point,) = parts(svg, "circle")
    (interval,) = parts(svg, "path")
    start, end = re.findall(r"(?:M|H)([\d.]+)", interval["d"])
    assert float(start) < float(point["cx"]) < float(end)
    assert len(parts(svg, "line")) == 2, "zero and the limit"
    assert len(parts(interval_plot([("a", 0, 0, 0)], None, "none"), "line")) == 1


def test_bars_stay_within_the_plot() -> None:
    widths = [
        float(bar["width"])
        for bar in parts(bar_plot([("words (3)", 1.0, 0.0), ("odd", 7.0, -1.0)], "x"), "rect")
    ]
    assert widths[0] == widths[2] == max(widths)
    assert widths[1] == widths[3] == 0


def test_rows_that_got_worse_have_another_colour() -> None:
    points = parts(scatter_plot([(0.0, 1.0), (1.0, 0.0)], "rows"), "circle")
    assert points[0]["fill"] != points[1]["fill"]
    assert float(points[0]["cy"]) < float(points[1]["cy"]), "better is higher"


@pytest.mark.parametrize("name", ["<script>alert(1)</script>", '"><b onload="x', "a & b"])
def test_names_are_escaped(name: str) -> None:
    for svg in (interval_plot([(name, 0, 0, 1)], 0.5, name), bar_plot([(name, 0, 1)], name)):
        assert parts(svg, "text")
        assert not parts(svg, "script")
        assert "<b" not in svg
