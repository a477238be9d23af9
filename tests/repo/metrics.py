"""The page that lists every metric, made from the catalogue: `python -m tests.repo.metrics`."""

from importlib import import_module
from pathlib import Path
from typing import Final

from services.gateway.billing.metric_routes import TENANT_METRICS
from tunery.runtime.telemetry.catalogue import CATALOGUE, LABELS, Metric

ROOT: Final = Path(__file__).resolve().parents[2]
PAGE: Final = ROOT / "docs" / "reference" / "metrics.md"
DECLARES: Final = "tunery.runtime.telemetry.catalogue import"
HEAD: Final = """\
# Metrics

Made from the declarations in the code by `python -m tests.repo.metrics`; a test compares the two.
How to scrape them: [Observe a stack](../how-to/observe.md).

Histograms have the series `_bucket`, `_sum` and `_count`. Counters and histograms describe one
process and start at 0 with it. Gauges of states are read when they are scraped, from the partitions
that the process owns: add up those of all replicas.

| metric | kind | unit | labels | meaning | declared in |
|---|---|---|---|---|---|
"""
LABELS_HEAD: Final = """
## Labels

No label names a tenant, a job, a node, a request or a model: a thousand tenants make no more series
than one.

| label | values |
|---|---|
"""
TENANTS_HEAD: Final = """
## Metrics of a tenant

What `GET /v1/metrics` answers to a tenant's key: its own figures, all of them gauges. How to
scrape them: [Watch your jobs in your own tools](../how-to/tenant-metrics.md).

| metric | labels | meaning |
|---|---|---|
"""


def declared() -> dict[str, tuple[str, Metric]]:
    """Every metric by name, with the module that declares it."""
    modules: dict[str, str] = {}
    for folder in ("tunery", "services"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            if DECLARES in text:
                module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
                import_module(module)
                modules |= {name: module for name in CATALOGUE if f'"{name}"' in text}
    return {name: (modules[name], CATALOGUE[name]) for name in sorted(modules)}


def page() -> str:
    """The whole page."""
    rows = "".join(f"{_row(module, metric)}\n" for module, metric in declared().values())
    labels_rows = "".join(f"| `{name}` | {values} |\n" for name, values in sorted(LABELS.items()))
    tenants = "".join(
        f"| `{name}` | {', '.join(f'`{label}`' for label in labels)} | {meaning} |\n"
        for name, labels, meaning in TENANT_METRICS
    )
    return f"{HEAD}{rows}{LABELS_HEAD}{labels_rows}{TENANTS_HEAD}{tenants}"


def _row(module: str, metric: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    kind = f"{metric.kind} of states" if metric.computed else metric.kind
    meaning = metric.meaning.replace("|", "\\|")
    cells = (f"`{metric.name}`", kind, metric.unit, labels, meaning, f"`{module}`")
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
