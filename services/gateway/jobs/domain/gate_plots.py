"""Plots of the gate's report as SVG: numbers and names, which are escaped. Pure."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

WIDTH: Final = 640
LABEL: Final = 220  # pixels before the axis
LINE: Final = 26
BASE: Final = "#8a8f98"
ADAPTER: Final = "#2266cc"
WRONG: Final = "#b3261e"
SQUARE: Final = 320


def interval_plot(
    lines: Sequence[tuple[str, float, float, float]], limit: float | None, label: str
) -> str:
    """Estimates with their bounds, one above the other, and the limit that they are judged by.

    lines: name, lower bound, estimate, upper bound
    """
    values = [value for _, *bounds in lines for value in bounds] + [0.0]
    values += [] if limit is None else [limit]
    low, high = _range(values)

    def at(value: float) -> float:
        return LABEL + (WIDTH - LABEL - 20) * (value - low) / (high - low)

    parts = [_vertical(at(0.0), len(lines), BASE, "0")]
    if limit is not None:
        parts.append(_vertical(at(limit), len(lines), WRONG, f"{limit:g}"))
    for number, (name, lower, middle, upper) in enumerate(lines):
        y = LINE * number + LINE
        parts += [
            _text(0, y + 4, name),
            f'<path d="M{at(lower):.1f} {y}H{at(upper):.1f}" stroke="{ADAPTER}" stroke-width="2"/>',
            f'<circle cx="{at(middle):.1f}" cy="{y}" r="4" fill="{ADAPTER}"/>',
        ]
    return _svg(WIDTH, LINE * len(lines) + 2 * LINE, label, parts)


def bar_plot(lines: Sequence[tuple[str, float, float]], label: str) -> str:
    """Two bars for each name: shares of the base model and of the adapter, from 0 to 1."""
    parts = []
    for number, (name, base, adapter) in enumerate(lines):
        y = LINE * number + 8
        parts.append(_text(0, y + 13, name))
        for offset, share, colour in ((0, base, BASE), (9, adapter, ADAPTER)):
            width = (WIDTH - LABEL - 60) * min(max(share, 0.0), 1.0)
            parts.append(
                f'<rect x="{LABEL}" y="{y + offset}" width="{width:.1f}" height="8" '
                f'fill="{colour}"/>'
            )
        parts.append(_text(WIDTH - 55, y + 13, f"{100 * (adapter - base):+.0f}"))
    return _svg(WIDTH, LINE * len(lines) + 16, label, parts)


def scatter_plot(points: Iterable[tuple[float, float]], label: str) -> str:
    """Scores of the same rows: the base model's to the right, the adapter's upwards."""
    points = list(points)
    low, high = _range([value for point in points for value in point] + [0.0, 1.0])

    def at(value: float) -> float:
        return 20 + (SQUARE - 40) * (value - low) / (high - low)

    edge = f'x1="20" y1="{SQUARE - 20}" x2="{SQUARE - 20}" y2="20"'
    parts = [f'<line {edge} stroke="{BASE}" stroke-dasharray="4"/>']
    parts += [
        f'<circle cx="{at(base):.1f}" cy="{SQUARE - at(adapter):.1f}" r="4" '
        f'fill="{ADAPTER if adapter >= base else WRONG}" fill-opacity="0.4"/>'
        for base, adapter in points
    ]
    parts += [_text(SQUARE - 90, SQUARE - 4, "base model"), _text(0, 14, "new model")]
    return _svg(SQUARE, SQUARE, label, parts)


def _range(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    margin = 0.05 * (high - low) or 0.5
    return low - margin, high + margin


def _vertical(x: float, lines: int, colour: str, name: str) -> str:
    end = LINE * lines + LINE // 2
    line = f'<line x1="{x:.1f}" x2="{x:.1f}" y1="4" y2="{end}" stroke="{colour}"/>'
    return line + _text(x - 6, end + 16, name)


def _text(x: float, y: float, text: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="12">{escape(text)}</text>'


def _svg(width: int, height: int, label: str, parts: Iterable[str]) -> str:
    return (
        f'<svg role="img" aria-label="{escape(label)}" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}">{"".join(parts)}</svg>'
    )
