"""Alerts as code: they ask for metrics that exist; each leads to its section of the runbooks."""

import re
from typing import Any, Final

import yaml

from tests.repo.metrics import ROOT, declared
from tunery.local.stack import SERVICES

FOLDER: Final = ROOT / "infra" / "prometheus"
RUNBOOKS: Final = ROOT / "docs" / "how-to" / "runbooks.md"
#: a metric or a record, and the labels that are asked of it
SELECTOR: Final = re.compile(r"\b((?:tunery[:_][\w:]+)|up)\b(?:\{([^}]*)\})?")
MATCHER: Final = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"([^\"]*)\"")
GROUPED: Final = re.compile(r"\b(?:by|without) \(([\w, ]+)\)")
OF_PROMETHEUS: Final = {"instance", "job", "le", "alertname"}


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((FOLDER / "rules.yml").read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def alerts() -> dict[str, dict[str, Any]]:
    return {rule["alert"]: rule for rule in rules() if "alert" in rule}


def series() -> dict[str, set[str]]:
    """The labels of every series that our services and our records make."""
    known: dict[str, set[str]] = {"up": {"job", "instance"}}
    for name, (_, metric) in declared().items():
        ends = ("_bucket", "_sum", "_count") if metric.kind == "histogram" else ("",)
        known |= {f"{name}{end}": {*metric.labels, *OF_PROMETHEUS} for end in ends}
    for rule in rules():
        if "record" in rule:
            grouped = GROUPED.findall(rule["expr"])
            known[rule["record"]] = {label.strip() for part in grouped for label in part.split(",")}
    return known


def unknown_in(expression: str) -> list[str]:
    """Metrics that nobody makes, and labels that they do not have."""
    known, wrong = series(), []
    for name, matchers in SELECTOR.findall(expression):
        labels = {label for label, _ in MATCHER.findall(matchers)}
        if name not in known:
            wrong.append(name)
        elif labels - known[name]:
            wrong.append(f"{name}{labels - known[name]}")
    return wrong


def test_rules_ask_for_metrics_and_labels_that_exist() -> None:
    assert [(rule, wrong) for rule in rules() if (wrong := unknown_in(rule["expr"]))] == []


def test_a_metric_or_label_that_nobody_makes_is_noticed() -> None:
    assert unknown_in("rate(tunery_nothing_total[5m]) > 1") == ["tunery_nothing_total"]
    assert unknown_in('tunery_pool_nodes{tenant="acme"}') == ["tunery_pool_nodes{'tenant'}"]


def test_labels_by_which_is_grouped_are_those_of_a_metric_in_the_expression() -> None:
    known = series()
    for rule in rules():
        names = [name for name, _ in SELECTOR.findall(rule["expr"])]
        labels = set().union(*(known[name] for name in names))
        grouped = {part.strip() for by in GROUPED.findall(rule["expr"]) for part in by.split(",")}
        assert grouped <= labels, rule


def test_each_alert_has_a_severity_a_summary_and_a_section_of_the_runbooks() -> None:
    sections = re.findall(r"^## (\w+)$", RUNBOOKS.read_text(encoding="utf-8"), re.MULTILINE)
    assert sections == list(alerts()), "one section for each alert, in their order"
    for name, rule in alerts().items():
        assert rule["labels"]["severity"] in {"page", "ticket"}
        assert rule["annotations"]["summary"]
        assert rule["annotations"]["runbook"] == f"docs/how-to/runbooks.md#{name.lower()}"


def test_sections_begin_with_the_severity_of_their_alert() -> None:
    text = RUNBOOKS.read_text(encoding="utf-8")
    for name, rule in alerts().items():
        section = text.partition(f"## {name}\n\n")[2]
        assert section.startswith(f"{rule['labels']['severity'].capitalize()}. "), name


def test_each_alert_has_an_example_in_which_it_fires() -> None:
    examples = (FOLDER / "rules_test.yml").read_text(encoding="utf-8")
    for name in alerts():
        assert re.search(rf'alertname(?::|=) ?"?{name}\b', examples), name


def test_prometheus_scrapes_each_service_of_a_stack() -> None:
    settings = yaml.safe_load((FOLDER / "prometheus.yml").read_text(encoding="utf-8"))
    (job,) = settings["scrape_configs"]
    assert job["job_name"] == "tunery"
    targets = job["static_configs"][0]["targets"]
    assert targets == [f"127.0.0.1:{9400 + number}" for number in range(len(SERVICES))]
