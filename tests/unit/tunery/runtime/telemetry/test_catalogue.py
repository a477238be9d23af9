"""Valid declarations of metrics."""

import pytest

from tunery.runtime.telemetry.catalogue import CATALOGUE, Metric, declare
from tunery.runtime.telemetry.metrics import DECISIONS


@pytest.mark.parametrize(
    ("metric", "why"),
    [
        (Metric("requests_total", "counter", "", (), "x"), "does not begin with tunery_"),
        (Metric(DECISIONS._name + "_total", "counter", "", (), "x"), "is taken"),
        (Metric("tunery_things", "counter", "", (), "x"), "end in _total"),
        (Metric("tunery_things_total", "gauge", "", (), "x"), "end in _total"),
        (Metric("tunery_things", "gauge", "", ("tenant",), "x"), "'tenant'} is not in LABELS"),
    ],
)
def test_invalid_catalogues_are_refused(metric: Metric, why: str) -> None:
    before = dict(CATALOGUE)
    with pytest.raises(ValueError, match=why):
        declare(metric)
    assert before == CATALOGUE
