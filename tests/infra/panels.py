"""Panels of dashboards, their queries, and common forms of queries.

Gauges of states are summed, as each replica knows the partitions that it owns. Counters are shown
as rates of `$__rate_interval`, a duration that Grafana fits to the scrape interval.
"""

from typing import Final, Literal, NamedTuple, TypeAlias

Unit: TypeAlias = Literal["short", "s", "bytes", "Bps", "ops", "reqps", "percentunit"]
SECONDS_OF_AN_HOUR: Final = 3_600


class Query(NamedTuple):
    """text: PromQL. legend: the name of each curve, with labels in double braces."""

    text: str
    legend: str


class Panel(NamedTuple):
    """is_number: the newest value instead of curves over time."""

    title: str
    unit: Unit
    queries: tuple[Query, ...]
    meaning: str = ""
    is_number: bool = False


class Board(NamedTuple):
    """One dashboard. window: how far back it looks at first. has_pools: a choice of pools."""

    name: str
    title: str
    meaning: str
    panels: tuple[Panel, ...]
    window: str = "6h"
    has_pools: bool = False


def curves(title: str, unit: Unit, text: str, legend: str, meaning: str = "") -> Panel:
    """A panel with one query, a curve for each of its series."""
    return Panel(title, unit, (Query(text, legend),), meaning)


def number(title: str, unit: Unit, text: str, meaning: str = "") -> Panel:
    """A panel that shows the newest value of one series."""
    return Panel(title, unit, (Query(text, ""),), meaning, is_number=True)


def rates(counter: str, *labels: str, where: str = "") -> str:
    """A second's growth of a counter, added up by labels."""
    return f"{_sum(labels)}(rate({counter}{where}[$__rate_interval]))"


def counts(counter: str, *labels: str, where: str = "", over: str = "1h") -> str:
    """The growth of a counter over a time, added up by labels."""
    return f"{_sum(labels)}(increase({counter}{where}[{over}]))"


def total(gauge: str, *labels: str, where: str = "") -> str:
    """A gauge added up over replicas, by labels."""
    return f"{_sum(labels)}({gauge}{where})"


def share(counter: str, part: str, of: str = "{}", over: str = "1h") -> str:
    """Share of a counter's growth that also has the labels of `part`."""
    some = f"{{{', '.join(filter(None, (of[1:-1], part)))}}}"
    every = "" if of == "{}" else of
    part_counts = or_zero(counts(counter, where=some, over=over))
    return f"({part_counts}) / {counts(counter, where=every, over=over)}"


def or_zero(query: str) -> str:
    """A query without labels that is 0 where it has no series: nothing has happened yet."""
    return f"{query} or vector(0)"


def quantiles(title: str, histogram: str, *labels: str, where: str = "") -> Panel:
    """A panel with the median and the 99th percentile of a time, by labels."""
    names = " ".join(f"{{{{{label}}}}}" for label in labels)
    every = f"{_sum((*labels, 'le'))}(rate({histogram}_bucket{where}[$__rate_interval]))"
    queries = tuple(
        Query(f"histogram_quantile({share}, {every})", f"{names} {name}".strip())
        for share, name in (("0.5", "median"), ("0.99", "p99"))
    )
    return Panel(title, "s", queries)


def _sum(labels: tuple[str, ...]) -> str:
    return f"sum by ({', '.join(labels)}) " if labels else "sum"


def gpu_hours(query: str) -> str:
    return f"{query} / {SECONDS_OF_AN_HOUR}"
