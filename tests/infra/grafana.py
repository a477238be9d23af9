"""Dashboards of Grafana, built with its foundation SDK from what the two lists of boards declare.

`python -m tests.infra.grafana` writes them to `infra/grafana/dashboards/`.
"""

import json
from pathlib import Path
from typing import Final

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, table, timeseries
from grafana_foundation_sdk.cog.builder import Builder as Part
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.variants import Dataquery
from grafana_foundation_sdk.models import common as looks
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DashboardLinkType,
    DataSourceRef,
    VariableRefresh,
)

from tests.infra.boards import DASHBOARDS
from tests.infra.panels import Board, Panel
from tests.infra.sql_boards import SQL_DASHBOARDS, TENANTS, SqlBoard, SqlPanel, in_grafana
from tests.infra.variables import INFRA

FOLDER: Final = INFRA / "grafana"
WRITTEN: Final = FOLDER / "dashboards"
TAG: Final = "tunery"
DATASOURCE: Final = DataSourceRef("prometheus", "${datasource}")
POSTGRES: Final = DataSourceRef("grafana-postgresql-datasource", "${postgres}")
#: width and height of a panel on Grafana's grid, which is 24 wide
WIDE, HIGH, NARROW, LOW = 12, 8, 6, 4
Builder = timeseries.Panel | stat.Panel


class SqlQuery(Dataquery):
    """A query of PostgreSQL, of which the SDK has no model."""

    def __init__(self, panel: SqlPanel) -> None:
        self._panel = panel

    def to_json(self) -> dict[str, object]:
        return {
            "refId": "A",
            "datasource": POSTGRES,
            "editorMode": "code",
            "format": "table" if self._panel.shown == "table" else "time_series",
            "rawQuery": True,
            "rawSql": in_grafana(self._panel.sql),
        }


class SqlTarget(Part[Dataquery]):
    """Builds a `SqlQuery`."""

    def __init__(self, panel: SqlPanel) -> None:
        self._panel = panel

    def build(self) -> Dataquery:
        return SqlQuery(self._panel)


def texts() -> dict[str, str]:
    """The text of each file of `infra/grafana/dashboards/`, by its name."""
    return {
        **{f"{board.name}.json": text_of(board) for board in DASHBOARDS},
        **{f"{board.name}.json": sql_text_of(board) for board in SQL_DASHBOARDS},
    }


def text_of(board: Board) -> str:
    """A dashboard as Grafana reads it."""
    built = begun(board).with_variable(
        dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus")
    )
    if board.has_pools:
        built = built.with_variable(
            dashboard.QueryVariable("pool")
            .label("Pool")
            .datasource(DATASOURCE)
            .query("label_values(tunery_pool_nodes, pool)")
            .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
            .multi(True)
            .include_all(True)
            .all_value(".*")
        )
    for number, panel in enumerate(board.panels, start=1):
        built = built.with_panel(panel_of(panel).id(number))
    return as_text(built)


def sql_text_of(board: SqlBoard) -> str:
    """A dashboard over PostgreSQL as Grafana reads it."""
    built = begun(board).with_variable(
        dashboard.DatasourceVariable("postgres").label("PostgreSQL").type(POSTGRES.type_val or "")
    )
    if board.of_tenant:
        built = built.with_variable(
            dashboard.QueryVariable("tenant")
            .label("Tenant")
            .datasource(POSTGRES)
            .query(TENANTS)
            .refresh(VariableRefresh.ON_DASHBOARD_LOAD)
        )
    for number, panel in enumerate(board.panels, start=1):
        built = built.with_panel(sql_panel_of(panel).id(number))
    return as_text(built)


def begun(board: Board | SqlBoard) -> dashboard.Dashboard:
    """A dashboard without variables and panels."""
    return (
        dashboard.Dashboard(f"Tunery: {board.title}")
        .uid(f"tunery-{board.name}")
        .description(board.meaning)
        .tags([TAG])
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .time(f"now-{board.window}", "now")
        .refresh("30s")
        .link(
            dashboard.DashboardLink("Tunery")
            .type(DashboardLinkType.DASHBOARDS)
            .tags([TAG])
            .as_dropdown(True)
            .keep_time(True)
            .include_vars(True)
        )
    )


def as_text(built: dashboard.Dashboard) -> str:
    """JSON with a line for each field and each panel, so that reviews see which one has changed."""
    board = json.loads(json.dumps(built.build(), cls=JSONEncoder, sort_keys=True))
    panels = ",\n".join(json.dumps(panel) for panel in board["panels"])
    texts = {name: json.dumps(value) for name, value in board.items()}
    texts["panels"] = f"[\n{panels}\n]"
    fields = ",\n".join(f"{json.dumps(name)}: {text}" for name, text in texts.items())
    return f"{{\n{fields}\n}}\n"


def panel_of(panel: Panel) -> Builder:
    """A curve over time, or a number: the newest value, with a curve behind it."""
    built: Builder = (
        stat.Panel().graph_mode(looks.BigValueGraphMode.AREA).span(NARROW).height(LOW)
        if panel.is_number
        else timeseries.Panel()
        .fill_opacity(10)
        .min(0)
        .legend(common.VizLegendOptions().show_legend(True).placement(looks.LegendPlacement.BOTTOM))
        .span(WIDE)
        .height(HIGH)
    )
    built = built.title(panel.title).unit(panel.unit).datasource(DATASOURCE)
    if panel.meaning:
        built = built.description(panel.meaning)
    for letter, query in zip("ABCDEFGH", panel.queries, strict=False):
        built = built.with_target(
            prometheus.Dataquery()
            .ref_id(letter)
            .datasource(DATASOURCE)
            .expr(query.text)
            .legend_format(query.legend)
            .range()
        )
    return built


def sql_panel_of(panel: SqlPanel) -> timeseries.Panel | table.Panel:
    """A curve over time, or a table."""
    built: timeseries.Panel | table.Panel = (
        table.Panel()
        if panel.shown == "table"
        else timeseries.Panel()
        .fill_opacity(10)
        .min(0)
        .legend(common.VizLegendOptions().show_legend(True).placement(looks.LegendPlacement.BOTTOM))
    )
    built = built.span(WIDE).height(HIGH).title(panel.title).unit(panel.unit)
    if panel.meaning:
        built = built.description(panel.meaning)
    return built.datasource(POSTGRES).with_target(SqlTarget(panel))


def write(folder: Path = WRITTEN) -> None:
    """Write all dashboards; files of others that are gone are removed."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.json"):
        old.unlink()
    for name, text in texts().items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write()
