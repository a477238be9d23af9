"""Alerts as code: they ask for metrics that exist; each leads to its section of the runbooks."""

import re
from typing import Any, Final

import pytest
import yaml

from tests.repo.metrics import ROOT
from tests.repo.promql import PROMETHEUS, QueryError, labels_of, rules
from tunery.local.stack import SERVICES

RUNBOOKS: Final = ROOT / "docs" / "how-to" / "runbooks.md"
LABEL_SHOWN: Final = re.compile(r"\$labels\.(\w+)")


def alerts() -> dict[str, dict[str, Any]]:
    return {rule["alert"]: rule for rule in rules() if "alert" in rule}


def test_rules_ask_for_metrics_and_labels_that_exist() -> None:
    for rule in rules():
        shown = LABEL_SHOWN.findall(str(rule.get("annotations", "")))
        assert set(shown) <= labels_of(rule["expr"]), rule


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("rate(tunery_nothing_total[5m]) > 1", "there is no metric tunery_nothing_total"),
        ('tunery_pool_nodes{tenant="acme"}', "no label tenant"),
        ("sum by (tenant) (tunery_pool_nodes)", "no label tenant"),
        ("sum without (lane) (tunery_pool_nodes)", "no label lane"),
        ("sum by (pool) (tunery_pool_waiting) > sum by (lane) (tunery_pool_waiting)", "match no"),
        ("sum by (pool) (tunery_pool_nodes) / sum(tunery_pool_nodes)", "match no"),
        ("histogram_quantile(0.9, sum by (lane) (tunery_pool_wait_seconds_bucket))", "no label le"),
        ("rate(tunery_http_requests_total)", "expected type matrix"),
        ("sum(up", "unclosed"),
    ],
)
def test_a_query_that_can_have_no_result_is_noticed(query: str, said: str) -> None:
    with pytest.raises(QueryError, match=said):
        labels_of(query)


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
    examples = (PROMETHEUS / "rules_test.yml").read_text(encoding="utf-8")
    for name in alerts():
        assert re.search(rf'alertname(?::|=) ?"?{name}\b', examples), name


def test_prometheus_scrapes_each_service_of_a_stack() -> None:
    settings = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text(encoding="utf-8"))
    (job,) = settings["scrape_configs"]
    assert job["job_name"] == "tunery"
    targets = job["static_configs"][0]["targets"]
    assert targets == [f"127.0.0.1:{9400 + number}" for number in range(len(SERVICES))]
