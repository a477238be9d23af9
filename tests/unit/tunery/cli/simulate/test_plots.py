"""Charts are SVG that needs nothing else."""

from xml.etree import ElementTree as Xml

from tunery.cli.simulate.plots import POINTS_MAX, line_chart, thin, ticks


def test_a_chart_has_a_line_for_each_name_inside_its_frame() -> None:
    chart = line_chart({"a < b": [(0, 0), (10, 5)], "c": [(0, 5), (5, 0)], "no": []}, "x", "y")
    figure = Xml.fromstring(chart)  # noqa: S314  # our own text
    lines = [line.attrib["points"] for line in figure.iter("polyline")]
    assert lines == ["56.0,240.0 708.0,12.0", "56.0,12.0 382.0,240.0"]
    assert [span.find("i").tail for span in figure.iter("span")] == ["a < b", "c"]  # type: ignore[union-attr]  # every span has one


def test_long_lines_are_thinned_and_keep_their_ends() -> None:
    points = [(float(number), 0.0) for number in range(10_000)]
    fewer = thin(points)
    assert (len(fewer), fewer[0], fewer[-1]) == (POINTS_MAX, points[0], points[-1])


def test_ticks_are_round() -> None:
    assert ticks(328) == [0, 100, 200, 300]
    assert ticks(0.9) == [0, 0.2, 0.4, 0.6000000000000001, 0.8]
    assert ticks(0) == [0]
