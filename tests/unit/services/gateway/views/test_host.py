"""Hosts of the read models run without the API."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

from services.gateway.settings import GatewaySettings
from services.gateway.views.host import VIEWS, view_hosts
from services.gateway.views.reading import views_of
from services.gateway.views.tables.accounts import BUDGETS
from services.gateway.views.tables.jobs import JOBS
from tunery.platform.memory_servers import memory_servers

ROOT: Final = Path(__file__).resolve().parents[5]
RUN_S_MAX: Final = 120


async def test_the_hosts_are_a_projector_and_a_reader_for_each_other_topic() -> None:
    runtime = (await memory_servers()).runtime("gateway")
    hosts = view_hosts(runtime, views_of(runtime.store), GatewaySettings().days_kept)
    assert [type(host).__name__ for host in hosts] == ["Projector", "TopicReader", "TopicReader"]


def test_a_process_that_fills_views_loads_no_http() -> None:
    script = (
        "import json, sys, services.gateway.views.host, services.gateway.views.reading;"
        "print(json.dumps(list(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=RUN_S_MAX,
        check=True,
    )
    loaded = {name.partition(".")[0] for name in json.loads(done.stdout)}
    assert not {"fastapi", "starlette", "uvicorn"} & loaded


def test_views_show_no_text_of_a_tenant() -> None:
    sealed = {"submitted_by"}
    assert sealed <= JOBS.columns.keys()
    assert not any(column in VIEWS for column in sealed)
    assert "id AS budget_id" in VIEWS
    assert BUDGETS.columns["use"] == "jsonb"
