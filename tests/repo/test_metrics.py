"""The catalogue of metrics is complete, and the page of it is up to date."""

import re
from pathlib import Path

from prometheus_client import REGISTRY

from tests.repo.metrics import PAGE, ROOT, declared, page
from tunery.runtime.telemetry.catalogue import CATALOGUE

CONSTRUCTED = re.compile(
    r"from prometheus_client[\w.]* import [^\n]*\b(?:Counter|Gauge|Histogram|Summary|Info|Enum)\b"
)


def test_the_page_of_metrics_is_that_of_the_catalogue() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "python -m tests.repo.metrics"


def test_every_metric_of_ours_is_declared_in_the_catalogue() -> None:
    assert declared().keys() == CATALOGUE.keys()
    names = {
        f"{family.name}{'_total' if family.type == 'counter' else ''}" for family in collected()
    }
    plain = {name for name, metric in CATALOGUE.items() if not metric.computed}
    assert {name for name in names if name.startswith("tunery_")} == plain


def test_nothing_but_the_catalogue_makes_metrics() -> None:
    paths = [path for folder in ("tunery", "services") for path in (ROOT / folder).rglob("*.py")]
    makers = [path for path in paths if CONSTRUCTED.search(path.read_text(encoding="utf-8"))]
    assert makers == [ROOT / Path("tunery/runtime/telemetry/catalogue.py")]


def test_no_label_can_name_a_tenant_or_anything_else_without_a_bound() -> None:
    labels = {label for metric in CATALOGUE.values() for label in metric.labels}
    assert not labels & {"tenant", "job_id", "job", "node", "request_id", "model", "file"}


def collected() -> list:  # type: ignore[type-arg]  # families of prometheus_client
    return list(REGISTRY.collect())
