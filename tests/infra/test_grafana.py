"""Dashboards: written as declared, of metrics and labels that exist, and none is left out."""

import json
import re
from typing import Any, Final

import pytest
import yaml

from schemas.access import READER
from tests.infra.boards import DASHBOARDS
from tests.infra.grafana import DATASOURCE, FOLDER, POSTGRES, WRITTEN, texts
from tests.infra.panels import Board, Query
from tests.infra.sql_boards import SQL_DASHBOARDS, SqlBoard, in_grafana
from tests.infra.variables import ROOT
from tests.repo.metrics import declared
from tests.repo.openapi import LIST
from tests.repo.promql import PROMETHEUS, labels_of, metric_of, rules, selectors_of
from tunery.platform.store.roles import role_of

IN_LEGEND: Final = re.compile(r"\{\{\s*(\w+)\s*\}\}")
IN_QUERY: Final = re.compile(r"\$(?!__)(\w+)")
NAMES: Final = [board.name for board in DASHBOARDS]
#: labels whose values are no names of ours
FREE: Final = {"pool", "status", "route", "job", "alertstate"}


def queries_of(board: Board) -> list[Query]:
    return [query for panel in board.panels for query in panel.queries]


def every_query() -> list[Query]:
    return [query for board in DASHBOARDS for query in queries_of(board)]


def files() -> dict[str, dict[str, Any]]:
    return {path.stem: json.loads(path.read_text("utf-8")) for path in WRITTEN.glob("*.json")}


def test_the_files_are_those_that_the_declarations_make() -> None:
    written = {path.name: path.read_text("utf-8") for path in WRITTEN.iterdir()}
    assert written == texts(), "python -m tests.infra.grafana"


@pytest.mark.parametrize("board", DASHBOARDS, ids=NAMES)
def test_queries_ask_for_series_and_labels_that_exist(board: Board) -> None:
    for query in queries_of(board):
        assert set(IN_LEGEND.findall(query.legend)) <= labels_of(query.text), query


@pytest.mark.parametrize("board", DASHBOARDS, ids=NAMES)
def test_files_hold_the_queries_that_are_declared_and_ask_the_source_that_is_chosen(
    board: Board,
) -> None:
    file = files()[board.name]
    targets = [target for panel in file["panels"] for target in panel["targets"]]
    shown = [Query(target["expr"], target["legendFormat"]) for target in targets]
    assert shown == queries_of(board)
    source = {"type": DATASOURCE.type_val, "uid": DATASOURCE.uid}
    assert all(each["datasource"] == source for each in (*targets, *file["panels"]))
    variables = {variable["name"] for variable in file["templating"]["list"]}
    assert variables >= {"datasource", *IN_QUERY.findall(" ".join(q.text for q in shown))}
    assert ("pool" in variables) is any("$pool" in query.text for query in shown)


@pytest.mark.parametrize("board", SQL_DASHBOARDS, ids=[board.name for board in SQL_DASHBOARDS])
def test_files_over_postgresql_hold_the_queries_that_are_declared(board: SqlBoard) -> None:
    file = files()[board.name]
    targets = [target for panel in file["panels"] for target in panel["targets"]]
    assert [target["rawSql"] for target in targets] == [in_grafana(p.sql) for p in board.panels]
    assert {target["format"] for target in targets} == {"table", "time_series"}
    source = {"type": POSTGRES.type_val, "uid": POSTGRES.uid}
    assert all(each["datasource"] == source for each in (*targets, *file["panels"]))
    variables = {variable["name"] for variable in file["templating"]["list"]}
    assert variables == {"postgres", "tenant"} if board.of_tenant else {"postgres"}
    assert all(("$tenant" in panel.sql) is board.of_tenant for panel in board.panels)


def test_every_metric_is_shown() -> None:
    shown = {
        metric_of(selector.name or "")
        for text in (*(query.text for query in every_query()), *expressions_of_records())
        for selector in selectors_of(text)
    }
    assert declared().keys() - shown == set()


def expressions_of_records() -> list[str]:
    """Expressions of the recording rules that panels use."""
    asked = {selector.name for query in every_query() for selector in selectors_of(query.text)}
    return [rule["expr"] for rule in rules() if rule.get("record") in asked]


def test_every_record_is_shown() -> None:
    asked = {selector.name for query in every_query() for selector in selectors_of(query.text)}
    assert {rule["record"] for rule in rules() if "record" in rule} <= asked


def test_values_of_labels_that_queries_ask_for_are_names_in_the_code() -> None:
    """A wrong value is no error in Prometheus: its panel would be empty for ever."""
    sources = "".join(
        path.read_text("utf-8")
        for folder in ("schemas", "services", "tunery")
        for path in (ROOT / folder).rglob("*.py")
    )
    asked = {
        value
        for query in every_query()
        for selector in selectors_of(query.text)
        for matcher in selector.matchers.matchers
        if matcher.name not in FREE
        for value in matcher.value.split("|")
    }
    assert "validate" in asked
    assert [value for value in asked if f'"{value}"' not in sources] == []


def test_the_route_of_answers_is_one_of_the_api() -> None:
    routes = {line.split()[1] for line in LIST.read_text(encoding="utf-8").splitlines()}
    asked = {
        matcher.value
        for query in every_query()
        for selector in selectors_of(query.text)
        for matcher in selector.matchers.matchers
        if matcher.name == "route"
    }
    assert asked
    assert asked <= routes


def test_panels_have_places_of_their_own_and_ids() -> None:
    for name, file in files().items():
        cells: set[tuple[int, int]] = set()
        for panel in file["panels"]:
            box = panel["gridPos"]
            own = {(box["x"] + x, box["y"] + y) for x in range(box["w"]) for y in range(box["h"])}
            assert box["x"] + box["w"] <= 24
            assert not own & cells, (name, panel["title"])
            cells |= own
        ids = [panel["id"] for panel in file["panels"]]
        assert len(set(ids)) == len(ids)
        assert file["uid"] == f"tunery-{name}"


def test_grafana_is_provisioned_with_the_dashboards_and_a_prometheus() -> None:
    folder = FOLDER / "provisioning"
    folders = [folder / "datasources" / f"{name}.yml" for name in ("prometheus", "postgres")]
    source, rows = (
        each for path in folders for each in yaml.safe_load(path.read_text("utf-8"))["datasources"]
    )
    assert (rows["type"], rows["user"]) == (POSTGRES.type_val, role_of(READER))
    scraped = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text("utf-8"))["global"]
    assert source["type"] == DATASOURCE.type_val
    assert source["url"] == "${GRAFANA_PROMETHEUS_URL}"
    assert source["jsonData"]["timeInterval"] == scraped["scrape_interval"]
    (provider,) = yaml.safe_load((folder / "dashboards" / "tunery.yml").read_text("utf-8"))[
        "providers"
    ]
    assert provider["type"] == "file"
    assert provider["options"]["path"] == "${GRAFANA_TUNERY_DASHBOARDS}"
