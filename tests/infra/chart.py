"""The chart, rendered by Helm itself.

`python -m tests.infra.chart` writes the renderings of the examples that are recorded.
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
DAEMONSET: Final[dict[str, Any]] = yaml.safe_load(
    EXAMPLE.with_name("daemonset.yaml").read_text(encoding="utf-8")
)
#: of the other example, what the first one has not
DAEMONSET_RECORDED: Final = Path(__file__).with_name("daemonset_rendered.yaml")
RELEASE: Final = "tunery"
WORKLOADS: Final = ("Deployment", "StatefulSet", "DaemonSet", "Job")


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


def rendered(changes: Mapping[str, Any], release: str = RELEASE) -> dict[str, str]:
    """Texts by template, of the example with changes. Raises HelmError for wrong values.

    release: its name, and that of its namespace
    """
    with Chart.load(CHART) as chart:
        values = merged(example(), changes)
        chart.validate_schema(values)
        return chart.render(values, name=release, namespace=release)


def text_of(templates: Mapping[str, str]) -> str:
    """All templates after one another, as `helm template` prints them."""
    return "".join(
        f"# Source: {name}\n{text.strip()}\n---\n"
        for name, text in sorted(templates.items())
        if name.endswith(".yaml") and text.strip()
    )


def objects_of(templates: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    yield from filter(None, yaml.safe_load_all(text_of(templates)))


def workloads(objects: "tuple[dict[str, Any], ...]") -> Iterator[tuple[dict[str, Any], Any]]:
    """Objects that make pods, and the template of their pods."""
    for item in objects:
        if item["kind"] in WORKLOADS:
            yield item, item["spec"]["template"]


@cache
def example_objects() -> tuple[dict[str, Any], ...]:
    return tuple(objects_of(rendered({})))


@cache
def daemonset_objects() -> tuple[dict[str, Any], ...]:
    return tuple(objects_of(rendered(DAEMONSET)))


def rendered_agents() -> dict[str, str]:
    """Texts by template, of what differs where agents keep their nodes' GPUs."""
    example_texts = rendered({})
    return {name: text for name, text in rendered(DAEMONSET).items() if text != example_texts[name]}


if __name__ == "__main__":
    DAEMONSET_RECORDED.write_text(text_of(rendered_agents()), encoding="utf-8")
    RECORDED.write_text(text_of(rendered({})), encoding="utf-8")
