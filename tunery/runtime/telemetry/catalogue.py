"""The catalogue of metrics: each is declared once, with its name, unit, labels and meaning.

Modules declare what they count with `counter`, `gauge`, `histogram` and `computed`; the page
docs/reference/metrics.md is made from what they declared. No label names a tenant, a job, a request
or anything else of which there are ever more: `LABELS` has all labels there are.
"""

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

from prometheus_client import Counter, Gauge, Histogram, disable_created_metrics

__all__ = [
    "CATALOGUE",
    "LABELS",
    "Counter",
    "Gauge",
    "Histogram",
    "Kind",
    "Metric",
    "Unit",
    "computed",
    "counter",
    "declare",
    "gauge",
    "histogram",
]

# Leave out the `_created` series of each counter, which has no user.
disable_created_metrics()  # type: ignore[no-untyped-call]  # the package declares no result

Kind: TypeAlias = Literal["counter", "gauge", "histogram"]
Unit: TypeAlias = Literal["", "bytes", "gpu-seconds", "seconds"]

#: every label, with what bounds the number of its values
LABELS: Final = {
    "cause": "causes of failures and credits, in `schemas`",
    "code": "codes in `schemas/errors.py`",
    "device": "devices of one node, by their number",
    "device_kind": "cpu, cuda",
    "direction": "put, get",
    "host": "hosts of one process",
    "kind": "kinds of effects, named in code",
    "lane": "premium, standard, free",
    "method": "HTTP methods",
    "outcome": "outcomes, named in code",
    "partition": "partitions of a topic",
    "percent": "thresholds of budgets: 50, 80, 100",
    "phase": "phases of jobs",
    "pool": "pools that operators named",
    "projection": "projections, named in code",
    "result": "results, named in code",
    "route": "templates of routes",
    "setting": "settings that name a file",
    "state": "states, named in code",
    "status": "statuses of HTTP",
    "stream": "streams of the catalogue of topics",
    "task": "kinds of tasks, named in code",
}


class Metric(NamedTuple):
    """One metric as it is declared."""

    name: str
    kind: Kind
    unit: Unit
    labels: tuple[str, ...]
    meaning: str
    computed: bool = False  # its values are read from states at each scrape


CATALOGUE: Final[dict[str, Metric]] = {}


def counter(name: str, meaning: str, labels: Sequence[str] = (), unit: Unit = "") -> Counter:
    """Declare what only grows; its name ends in `_total`. Raises ValueError."""
    metric = declare(Metric(name, "counter", unit, tuple(labels), meaning))
    return Counter(metric.name, metric.meaning, metric.labels)


def gauge(name: str, meaning: str, labels: Sequence[str] = (), unit: Unit = "") -> Gauge:
    """Declare what goes up and down. Raises ValueError."""
    metric = declare(Metric(name, "gauge", unit, tuple(labels), meaning))
    return Gauge(metric.name, metric.meaning, metric.labels)


def histogram(
    name: str, meaning: str, labels: Sequence[str], buckets: Sequence[float]
) -> Histogram:
    """Declare a distribution of seconds with these upper bounds. Raises ValueError."""
    metric = declare(Metric(name, "histogram", "seconds", tuple(labels), meaning))
    return Histogram(metric.name, metric.meaning, metric.labels, buckets=buckets)


def computed(name: str, meaning: str, labels: Sequence[str] = (), unit: Unit = "") -> Metric:
    """Declare a gauge that `StateGauges` reads from states when asked. Raises ValueError."""
    return declare(Metric(name, "gauge", unit, tuple(labels), meaning, computed=True))


def declare(metric: Metric) -> Metric:
    """Add it to the catalogue. Raises ValueError for a bad name, an unknown label, a second one."""
    if not metric.name.startswith("tunery_") or metric.name in CATALOGUE:
        raise ValueError(f"{metric.name} is taken, or does not begin with tunery_")
    if (metric.kind == "counter") != metric.name.endswith("_total"):
        raise ValueError(f"{metric.name}: names of counters, and no others, end in _total")
    if unknown := set(metric.labels) - LABELS.keys():
        raise ValueError(f"{metric.name}: {unknown} is not in LABELS, which names what bounds it")
    CATALOGUE[metric.name] = metric
    return metric
