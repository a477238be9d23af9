"""Gauges that are read from the states of a process when somebody scrapes it.

States are immutable, so the thread of a scrape may read them while decisions run. Nothing is
counted along, so nothing drifts, and a partition that another process took over is not reported
twice.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple, TypeAlias

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from tunery.runtime.telemetry.catalogue import Metric
from tunery.runtime.telemetry.logs import log_event

LOG: Final = logging.getLogger("tunery.metrics")


class StateValue(NamedTuple):
    """One value of a metric."""

    metric: Metric
    labels: tuple[str, ...]  # in the order of its declaration
    value: float


Source: TypeAlias = Callable[[], Iterable[StateValue]]


class StateGauges(Collector):
    """Prometheus collector of gauges that the services of a process compute at each scrape."""

    def __init__(self) -> None:
        self._sources: list[Source] = []

    def add(self, source: Source) -> None:
        """Ask this source at each scrape. It must not block."""
        self._sources.append(source)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The values of all sources; those with equal labels are added up."""
        sums: dict[Metric, dict[tuple[str, ...], float]] = {}
        for source in self._sources:
            for figure in _asked(source):
                values = sums.setdefault(figure.metric, {})
                values[figure.labels] = values.get(figure.labels, 0) + figure.value
        for metric, values in sums.items():
            family = GaugeMetricFamily(metric.name, metric.meaning, labels=metric.labels)
            for labels, value in values.items():
                family.add_metric(labels, value)
            yield family


def _asked(source: Source) -> Iterable[StateValue]:
    """Return the values of a source; none if it raises, so that the scrape does not fail."""
    try:
        return tuple(source())
    except Exception as error:  # a defect, or an owner that is dropped at this moment
        log_event(LOG, logging.WARNING, "metrics.source_failed", error)
        return ()
