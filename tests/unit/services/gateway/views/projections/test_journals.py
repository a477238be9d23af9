"""Every stream that the gateway reads has its projection."""

from importlib import import_module
from pathlib import Path

import pytest

import services.gateway as gateway
from schemas.envelope import Repeated
from services.gateway.views import audit, telemetry
from services.gateway.views.host import VIEWS_PROJECTION
from services.gateway.views.projections.journals import TABLES, notify, project
from services.gateway.views.table import Table
from tests.unit.services.gateway.jobs.job_events import JOB, SUBMITTED
from tests.unit.services.gateway.view_rows import header


def test_events_of_every_stream_are_projected() -> None:
    repeated = Repeated(of="command-1")
    for stream in VIEWS_PROJECTION.streams:
        assert project(header(stream.name), repeated) == ()
    with pytest.raises(ValueError, match="meteor"):
        project(header("meteor"), repeated)


def test_followers_of_a_job_are_notified_of_its_events() -> None:
    assert notify(header("job"), SUBMITTED) == f"acme/{JOB}"
    assert notify(header("dataset"), SUBMITTED) is None


def test_every_table_of_a_subject_is_made_with_the_others() -> None:
    """Sweeps were not: on PostgreSQL the first one would have stopped the projection."""
    folder = Path(gateway.__path__[0])
    modules = [
        import_module(f"services.gateway.views.tables.{path.stem}")
        for path in sorted(folder.glob("views/tables/[!_]*.py"))
    ]
    apart = [*vars(telemetry).values(), *vars(audit).values()]  # of logs of their own
    declared = {
        table.name
        for module in modules
        for table in vars(module).values()
        if isinstance(table, Table) and table not in apart
    }
    assert declared == {table.name for table in TABLES}
