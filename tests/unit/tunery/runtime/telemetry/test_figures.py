"""Gauges of states: added up over partitions, and none is lost because another one fails."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest

from tests.log_lines import logged
from tunery.runtime.telemetry.catalogue import Metric
from tunery.runtime.telemetry.figures import StateGauges, StateValue

OPEN = Metric("tunery_test_open", "gauge", "", ("phase",), "Open things", computed=True)


def test_sources_are_asked_at_each_scrape_and_equal_labels_are_added_up() -> None:
    counts = [1, 2]
    figures, registry = StateGauges(), CollectorRegistry()
    registry.register(figures)
    figures.add(lambda: [StateValue(OPEN, ("queued",), counts[0])])
    figures.add(lambda: [StateValue(OPEN, ("queued",), counts[1])])
    figures.add(lambda: [StateValue(OPEN, ("running",), 7)])
    assert b'tunery_test_open{phase="queued"} 3.0' in generate_latest(registry)
    counts[0] = 10
    text = generate_latest(registry)
    assert b'tunery_test_open{phase="queued"} 12.0' in text
    assert b'tunery_test_open{phase="running"} 7.0' in text


def test_a_failing_source_is_logged_and_others_are_reported() -> None:
    def broken() -> Iterator[StateValue]:
        yield StateValue(OPEN, ("queued",), 1)
        raise KeyError("dropped")

    figures, registry = StateGauges(), CollectorRegistry()
    figures.add(broken)
    figures.add(lambda: [StateValue(OPEN, ("running",), 7)])
    registry.register(figures)
    with logged() as lines:
        text = generate_latest(registry)
    assert (b"queued" in text, b'{phase="running"} 7.0' in text) == (False, True)
    assert [line["error"] for line in lines.of("metrics.source_failed")] == ["KeyError"]
