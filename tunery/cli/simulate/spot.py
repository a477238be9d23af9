"""Spot machines as a series says: how many of a zone can be had at each moment, and for how much.

It reads the JSON series of skypilot-org/spot-traces (`metadata.gap_seconds`, `data`, and `prices`
where it has them) and the CSV series of Bamboo (seconds, machines).
"""

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, pairwise
from pathlib import Path
from typing import Any, Final, TypeAlias

from schemas.units import HOUR_MS, MICRO, Micro, Ms
from tunery.cli.simulate.traces import SECOND_MS, TraceUnreadable, read_content

NOTICE_MS: Final[Ms] = 120_000  # of AWS; Google's is 30,000
# What has so much time left writes a checkpoint and ends; what has less loses its work since the
# last one.
SAVING_MS: Final[Ms] = 30_000
Steps: TypeAlias = tuple[tuple[Ms, int], ...]  # since when, and which value


@dataclass(frozen=True, slots=True)
class SpotSeries:
    """Machines of a zone over time."""

    machines: Steps  # how many there are, since when; ascending, from 0 on
    prices: Steps  # prices of a machine-hour in millionths of the series' currency; empty: unknown
    length_ms: Ms  # then the series begins again

    @property
    def machines_max(self) -> int:
        """The most that there are at any moment."""
        return max(machines for _, machines in self.machines)


@dataclass(frozen=True, slots=True)
class SpotScenario:
    """Spot nodes of a pool whose machines come and go as a series says."""

    series: SpotSeries  # machines of a zone; their largest number is the number of nodes
    nodes: int  # how many nodes are spot machines
    notice_ms: Ms = NOTICE_MS  # time from the notice of a machine to its end
    saved_every_ms: Ms = 600_000  # time between checkpoints of a job, by default the product's

    def changes(self) -> Iterator[tuple[Ms, int]]:
        """When another number of nodes has a machine, and how many then, without end."""
        series, before = self.series, -1
        for round_number in count():
            for since, machines in series.machines:
                up = machines * self.nodes // series.machines_max
                if up != before:
                    yield round_number * series.length_ms + since, up
                    before = up

    def price_micro(self, began: Ms, ended: Ms) -> Micro:
        """Return the cost of a machine from `began` to `ended`; the price series repeats."""
        series, micro_ms = self.series, 0
        if not series.prices:
            return 0
        whole_ms = sum(price * (end - since) for since, price, end in _spans(series))
        for at, sign in ((began, -1), (ended, 1)):
            rounds, rest_ms = divmod(at, series.length_ms)
            micro_ms += sign * rounds * whole_ms
            micro_ms += sign * sum(
                price * (min(end, rest_ms) - since)
                for since, price, end in _spans(series)
                if since < rest_ms
            )
        return micro_ms // HOUR_MS


def read_series(path: Path) -> SpotSeries:
    """A series of spot machines. Raises TraceUnreadable."""
    content = read_content(path)
    try:
        is_json = content.lstrip().startswith(b"{")
        series = _json(json.loads(content)) if is_json else _csv(content.decode())
    except (ValueError, KeyError, TypeError, IndexError) as error:
        why = f"{type(error).__name__}: {error}"
        raise TraceUnreadable(f"{path} is no series of spot machines ({why}).") from error
    if series.length_ms < 1 or min(machines for _, machines in series.machines) < 0:
        raise TraceUnreadable(f"{path} is no series of spot machines: it has no length.")
    if not series.machines_max:
        raise TraceUnreadable(f"{path}: there is no machine at any moment.")
    return series


def _json(series: dict[str, Any]) -> SpotSeries:
    gap_ms = int(series["metadata"]["gap_seconds"] * SECOND_MS)
    machines = [int(each) for each in series["data"]]
    prices = [round(each * MICRO) for each in series.get("prices") or ()]
    return SpotSeries(_steps(machines, gap_ms), _steps(prices, gap_ms), len(machines) * gap_ms)


def _csv(text: str) -> SpotSeries:
    """Lines of seconds and machines; of several at one moment the last one counts."""
    lines = csv.reader(io.StringIO(text))
    rows = [(round(float(seconds) * SECOND_MS), int(number)) for seconds, number in lines]
    if any(later < at for (at, _), (later, _) in pairwise(rows)):
        raise ValueError("its moments are not in order")
    begin = rows[0][0]
    machines = {at - begin: number for at, number in rows}
    return SpotSeries(tuple(machines.items()), (), rows[-1][0] - begin)


def _steps(values: list[int], gap_ms: Ms) -> Steps:
    return tuple(
        (number * gap_ms, value)
        for number, value in enumerate(values)
        if number == 0 or values[number - 1] != value
    )


def _spans(series: SpotSeries) -> Iterator[tuple[Ms, Micro, Ms]]:
    """Since when, the price, until when."""
    ends = (*(since for since, _ in series.prices[1:]), series.length_ms)
    for (since, price), end in zip(series.prices, ends, strict=True):
        yield since, price, end
