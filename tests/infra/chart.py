"""The chart, rendered by Helm itself.

`python -m tests.infra.chart` writes the rendering of the example that is recorded.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml
from helm_python.chart import Chart

from tests.infra.variables import INFRA

CHART: Final = INFRA / "helm" / "tunery"
EXAMPLE: Final = INFRA / "helm" / "example.yaml"
RECORDED: Final = Path(__file__).with_name("example_rendered.yaml")
RELEASE: Final = "tunery"


def example() -> dict[str, Any]:
    values: dict[str, Any] = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))
    return values


def merged(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Values with others over them, as several files of Helm."""
    result = dict(values)
    for name, change in changes.items():
        old = result.get(name)
        result[name] = (
            merged(old, change) if isinstance(old, dict) and isinstance(change, dict) else change
        )
    return result


def rendered(changes: Mapping[str, Any]) -> dict[str, str]:
    """Texts by template, of the example with changes. Raises HelmError for wrong values."""
    with Chart.load(CHART) as chart:
        values = merged(example(), changes)
        chart.validate_schema(values)
        return chart.render(values, name=RELEASE, namespace=RELEASE)


def text_of(templates: Mapping[str, str]) -> str:
    """All templates after one another, as `helm template` prints them."""
    return "".join(
        f"# Source: {name}\n{text.strip()}\n---\n"
        for name, text in sorted(templates.items())
        if name.endswith(".yaml")
    )


def objects_of(templates: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    yield from filter(None, yaml.safe_load_all(text_of(templates)))


@cache
def example_objects() -> tuple[dict[str, Any], ...]:
    return tuple(objects_of(rendered({})))


if __name__ == "__main__":
    RECORDED.write_text(text_of(rendered({})), encoding="utf-8")
