"""Dashboards of Grafana, built with its foundation SDK from what `boards` declares.

`python -m tests.infra.grafana` writes them to `infra/grafana/dashboards/`.
"""

import json
from pathlib import Path
from typing import Final

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as looks
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DashboardLinkType,
    DataSourceRef,
    VariableRefresh,
)

from tests.infra.boards import DASHBOARDS
from tests.infra.panels import Board, Panel
from tests.infra.variables import INFRA

FOLDER: Final = INFRA / "grafana"
WRITTEN: Final = FOLDER / "dashboards"
TAG: Final = "tunery"
DATASOURCE: Final = DataSourceRef("prometheus", "${datasource}")
#: width and height of a panel on Grafana's grid, which is 24 wide
WIDE, HIGH, NARROW, LOW = 12, 8, 6, 4
Builder = timeseries.Panel | stat.Panel


def texts() -> dict[str, str]:
    """The text of each file of `infra/grafana/dashboards/`, by its name."""
    return {f"{board.name}.json": text_of(board) for board in DASHBOARDS}


def text_of(board: Board) -> str:
    """A dashboard as Grafana reads it."""
    built = (
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
        .with_variable(
            dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus")
        )
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
    return f"{json.dumps(built.build(), cls=JSONEncoder, indent=2, sort_keys=True)}\n"


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


def write(folder: Path = WRITTEN) -> None:
    """Write all dashboards; files of others that are gone are removed."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.json"):
        old.unlink()
    for name, text in texts().items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write()
