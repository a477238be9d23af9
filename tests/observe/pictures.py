"""Pictures of dashboards: an SVG with a chart for each panel, from the panel's own queries."""

from collections.abc import Callable, Sequence
from html import escape
from math import ceil
from typing import Final, NamedTuple

from tests.infra.panels import Board, Panel, Unit

COLUMNS: Final = 2
WIDTH, HEIGHT, GAP = 400, 190, 12  # of a panel, and between panels
LEFT, TOP, RIGHT, BOTTOM = 58, 30, 12, 44  # from the edges of a panel to its chart
TICKS: Final = 3
NAMES_MAX: Final = 3  # of curves; the others are counted
NAME_CHARACTERS_MAX: Final = 22
COLOURS: Final = ("#3b6fd4", "#c8553d", "#2e8b57", "#a06bc4", "#b58900", "#4a9aa8")
SCALES: Final[dict[Unit, tuple[float, str]]] = {
    "percentunit": (100, " %"),
    "s": (1, " s"),
    "bytes": (1e-6, " MB"),
    "Bps": (1e-6, " MB/s"),
    "ops": (1, "/s"),
    "reqps": (1, "/s"),
    "short": (1, ""),
}
STYLE: Final = (
    "text{font:11px sans-serif;fill:#333}.t{font-weight:600;font-size:12px}"
    ".n{font-size:34px;text-anchor:middle}.y{text-anchor:end}.g{stroke:#ddd}"
    "polyline{fill:none;stroke-width:1.5}"
)


class Series(NamedTuple):
    """One curve. points: Unix times and values."""

    labels: dict[str, str]
    points: tuple[tuple[float, float], ...]


Ask = Callable[[str], Sequence[Series]]


class Curve(NamedTuple):
    name: str
    points: tuple[tuple[float, float], ...]


def picture(board: Board, ask: Ask, since: float, until: float) -> str:
    """A dashboard as SVG. ask: the series of a query; since, until: Unix times of its window."""
    rows = ceil(len(board.panels) / COLUMNS)
    width, height = COLUMNS * (WIDTH + GAP) + GAP, rows * (HEIGHT + GAP) + GAP
    boxes = []
    for at, panel in enumerate(board.panels):
        x = GAP + at % COLUMNS * (WIDTH + GAP)
        y = GAP + at // COLUMNS * (HEIGHT + GAP)
        inner = "".join(_panel(panel, _curves(panel, ask), since, until))
        boxes.append(f'<g transform="translate({x} {y})">{inner}</g>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}"><style>{STYLE}</style>'
        f'<rect width="{width}" height="{height}" fill="#f4f5f7"/>{"".join(boxes)}</svg>\n'
    )


def _curves(panel: Panel, ask: Ask) -> list[Curve]:
    curves = []
    for query in panel.queries:
        for series in ask(query.text):
            name = query.legend
            for label, value in series.labels.items():
                name = name.replace(f"{{{{{label}}}}}", value)
            curves.append(Curve(name.strip(), series.points))
    return sorted(curves)


def _panel(panel: Panel, curves: Sequence[Curve], since: float, until: float) -> list[str]:
    parts = [f'<rect width="{WIDTH}" height="{HEIGHT}" rx="4" fill="#fff" stroke="#ddd"/>']
    parts.append(f'<text class="t" x="12" y="20">{escape(panel.title)}</text>')
    if panel.is_number:
        newest = shown(curves[0].points[-1][1], panel.unit) if curves else "no data"
        middle = f'x="{WIDTH / 2:.0f}" y="{HEIGHT / 2 + 14:.0f}"'
        return [*parts, f'<text class="n" {middle}>{newest}</text>']
    most = max((value for curve in curves for _, value in curve.points), default=0) or 1
    for tick in range(TICKS):
        y = HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * tick / (TICKS - 1)
        parts.append(f'<path class="g" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>')
        label = shown(most * tick / (TICKS - 1), panel.unit)
        parts.append(f'<text class="y" x="{LEFT - 6}" y="{y + 4:.1f}">{label}</text>')
    minutes = (until - since) / 60
    parts.append(f'<text x="{LEFT}" y="{HEIGHT - 28}">0</text>')
    parts.append(f'<text class="y" x="{WIDTH - RIGHT}" y="{HEIGHT - 28}">{minutes:.1f} min</text>')
    for colour, curve in zip(COLOURS * len(curves), curves, strict=False):
        line = " ".join(_placed(point, since, until, most) for point in curve.points)
        parts.append(f'<polyline stroke="{colour}" points="{line}"/>')
    return parts + _names(curves)


def _placed(point: tuple[float, float], since: float, until: float, most: float) -> str:
    x = LEFT + (WIDTH - LEFT - RIGHT) * (point[0] - since) / max(until - since, 1)
    y = HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * max(0.0, point[1]) / most
    return f"{x:.1f},{y:.1f}"


def _names(curves: Sequence[Curve]) -> list[str]:
    """Legend of the curves, if there are several or the query names them."""
    if not curves:
        return [f'<text x="{LEFT + 8}" y="{HEIGHT / 2:.0f}">nothing to show</text>']
    parts, x = [], 12
    for colour, curve in zip(COLOURS, curves[:NAMES_MAX], strict=False):
        name = curve.name[:NAME_CHARACTERS_MAX]
        parts.append(f'<circle cx="{x + 4}" cy="{HEIGHT - 14}" r="4" fill="{colour}"/>')
        parts.append(f'<text x="{x + 12}" y="{HEIGHT - 10}">{escape(name)}</text>')
        x += 26 + 6 * len(name)
    if more := len(curves) - NAMES_MAX:
        parts += [f'<text x="{x}" y="{HEIGHT - 10}">+ {more}</text>'] if more > 0 else []
    return parts


def shown(value: float, unit: Unit) -> str:
    """A value as a person reads it."""
    factor, suffix = SCALES[unit]
    return f"{value * factor:,.3g}{suffix}"
