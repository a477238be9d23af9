"""The page of a simulation: the table of its figures, and plots; one file that needs no other."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Final

from schemas.units import HOUR_MS
from tunery.cli.simulate.plots import line_chart
from tunery.cli.simulate.trace_player import Played
from tunery.plan.scheduling.requests import LANES

STYLE: Final = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 760px; margin: 2em auto; padding: 0 1em }
table { border-collapse: collapse } th, td { padding: .15em 1em .15em 0; text-align: right }
th:first-child, td:first-child { text-align: left } tr + tr { border-top: 1px solid #8883 }
figure { margin: 1em 0 } svg { width: 100%; font-size: 11px } svg text { fill: currentColor }
polyline { stroke-width: 1.5 } .grid { stroke: #8884 } figcaption span { margin-right: 1.5em }
figcaption i { display: inline-block; width: 1em; height: .25em; margin-right: .4em;
  vertical-align: middle } @media (prefers-color-scheme: dark) { body { background: #161616;
  color: #ddd } }
"""


def page(
    title: str,
    said: Sequence[str],
    figures: Mapping[str, Mapping[str, float | int]],
    played: Mapping[str, Played],
) -> str:
    """HTML. `figures` and `played` have the same keys: the trace as it is, and each what-if."""
    paragraphs = "".join(f"<p>{escape(line)}</p>" for line in said)
    sections = [
        ("Waits by lane", _waits_by_lane(played)),
        ("Jobs that wait", _over_time(played, "jobs", "waiting")),
        ("Slots in use", _over_time(played, "slots", "used")),
    ]
    plots = "".join(f"<h2>{heading}</h2>{plot}" for heading, plot in sections)
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{STYLE}</style><h1>{escape(title)}</h1>{paragraphs}{_table(figures)}{plots}</html>\n"
    )


def _table(figures: Mapping[str, Mapping[str, float | int]]) -> str:
    first = next(iter(figures.values()))
    head = "".join(f"<th>{escape(name)}</th>" for name in figures)
    rows = "".join(
        f"<tr><td>{escape(key)}</td>"
        + "".join(f"<td>{each.get(key, '')}</td>" for each in figures.values())
        + "</tr>"
        for key in first
    )
    return f"<table><tr><th></th>{head}</tr>{rows}</table>"


def _waits_by_lane(played: Mapping[str, Played]) -> str:
    """Share of the jobs of each lane that have started, by hours since submission."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for name, each in played.items():
        for index, lane in enumerate(LANES):
            waits = sorted(job.wait_ms for job in each.jobs if job.job.lane == index)
            if waits:
                label = lane if len(played) == 1 else f"{lane}, {name}"
                lines[label] = [
                    (wait / HOUR_MS, 100 * (number + 1) / len(waits))
                    for number, wait in enumerate(waits)
                ]
    return line_chart(lines, "hours of waiting", "% of the jobs")


def _over_time(played: Mapping[str, Played], unit: str, field: str) -> str:
    lines = {
        name: [
            ((sample.at - each.samples[0].at) / (24 * HOUR_MS), float(getattr(sample, field)))
            for sample in each.samples
        ]
        for name, each in played.items()
    }
    return line_chart(lines, "days", unit)
