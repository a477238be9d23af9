"""Line charts as SVG, without a library: a page with them needs nothing else."""

from collections.abc import Mapping, Sequence
from html import escape
from math import floor, log10
from typing import Final, TypeAlias

Points: TypeAlias = Sequence[tuple[float, float]]
WIDTH, HEIGHT = 720, 280
LEFT, RIGHT, TOP, BOTTOM = 56, 12, 12, 40
TICKS: Final = 5
POINTS_MAX: Final = 1_500  # of a line: more than there are pixels
COLOURS: Final = ("#3b6fb6", "#c2552d", "#4a8f4f", "#8159a8", "#8a7a2e", "#555555")


def line_chart(lines: Mapping[str, Points], x_label: str, y_label: str) -> str:
    """One chart with all lines, their names below it, as an SVG element."""
    drawn = {name: thin(points) for name, points in lines.items() if points}
    x_max = max((x for points in drawn.values() for x, _ in points), default=1) or 1
    y_max = max((y for points in drawn.values() for _, y in points), default=1) or 1
    parts = [*_axes(x_max, y_max, x_label, y_label)]
    for number, points in enumerate(drawn.values()):
        path = " ".join(f"{_x(x, x_max):.1f},{_y(y, y_max):.1f}" for x, y in points)
        colour = COLOURS[number % len(COLOURS)]
        parts.append(f'<polyline fill="none" stroke="{colour}" points="{path}"/>')
    names = "".join(
        f'<span><i style="background:{COLOURS[number % len(COLOURS)]}"></i>{escape(name)}</span>'
        for number, name in enumerate(drawn)
    )
    svg = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img">{"".join(parts)}</svg>'
    return f"<figure>{svg}<figcaption>{names}</figcaption></figure>"


def thin(points: Points) -> Points:
    """Drop points down to a limit, and keep the first and the last."""
    if len(points) <= POINTS_MAX:
        return points
    step = (len(points) - 1) / (POINTS_MAX - 1)
    return [points[round(number * step)] for number in range(POINTS_MAX)]


def ticks(most: float) -> list[float]:
    """Round numbers from 0 to the most, about five."""
    if most <= 0:
        return [0.0]
    raw = most / TICKS
    unit = 10.0 ** floor(log10(raw))
    step = next(factor * unit for factor in (1, 2, 5, 10) if factor * unit >= raw)
    return [number * step for number in range(int(most / step + 1e-9) + 1)]


def _axes(x_max: float, y_max: float, x_label: str, y_label: str) -> Sequence[str]:
    parts = []
    for value in ticks(y_max):
        y = _y(value, y_max)
        parts.append(
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        )
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>')
    for value in ticks(x_max):
        x = _x(value, x_max)
        below = HEIGHT - BOTTOM + 16
        parts.append(f'<text x="{x:.1f}" y="{below}" text-anchor="middle">{value:g}</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(
        f'<text x="{middle}" y="{HEIGHT - 6}" text-anchor="middle">{escape(x_label)}</text>'
    )
    parts.append(
        f'<text transform="translate(14 {HEIGHT / 2}) rotate(-90)" text-anchor="middle">'
        f"{escape(y_label)}</text>"
    )
    return parts


def _x(value: float, most: float) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * value / most


def _y(value: float, most: float) -> float:
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / most
