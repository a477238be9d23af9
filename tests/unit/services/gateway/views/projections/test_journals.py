"""Every stream that the gateway reads has its projection."""

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import services.gateway as gateway
from schemas import errors
from schemas.envelope import Rejected, Repeated
from schemas.erasure import FilesErased
from schemas.reasons import refusing
from services.gateway.views import audit as audit_topic
from services.gateway.views import telemetry
from services.gateway.views.host import VIEWS_PROJECTION
from services.gateway.views.projections.journals import ROWS, TABLES, delete_erased, notify, project
from services.gateway.views.table import Table
from services.gateway.views.tables import accounts, audit, billing, jobs
from tests.unit.services.gateway.jobs.job_events import JOB, SUBMITTED
from tests.unit.services.gateway.view_rows import header
from tunery.runtime.verbs import Delete, Todo


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
    apart = [*vars(telemetry).values(), *vars(audit_topic).values()]  # of logs of their own
    declared = {
        table.name
        for module in modules
        for table in vars(module).values()
        if isinstance(table, Table) and table not in apart
    }
    assert declared == {table.name for table in TABLES}


AT = 1_000_000
FORGED = Rejected(
    code=errors.SENDER_REFUSED,
    reason=refusing("sender_not_permitted", sender="node.evil", command="CreateKey"),
)
UNSIGNED = Rejected(code=errors.SENDER_REFUSED, reason=refusing("sender_unproven"))


def rows(stream: str, event: Rejected, at: int = AT) -> tuple[Any, ...]:
    return project(header(stream, at=at), event)


@pytest.mark.parametrize("stream", ["account", "dataset", "job", "pool", "model"])
def test_security_c2_a_refused_sender_is_noted_whatever_the_stream(stream: str) -> None:
    (row,) = rows(stream, FORGED)
    assert isinstance(row, Todo)
    assert rows(stream, Rejected(code=errors.MALFORMED, reason=refusing("tenant_not_key"))) == ()


def test_refusals_of_a_minute_are_one_row() -> None:
    """A stranger may write as fast as Kafka takes it."""
    ids = {rows("pool", UNSIGNED, at)[0].id for at in range(1_020_000, 1_080_000, 1_000)}
    assert len(ids) == 1
    assert rows("pool", UNSIGNED, 1_080_000)[0].id not in ids


BILLS = (
    *(billing.MONTHS, billing.ADJUSTMENTS, billing.CREDIT_NOTES, billing.PREPAID),
    *(billing.STORED, billing.ANSWER_USES, jobs.USAGE, billing.BILLING_TERMS, billing.HELD_BOOKS),
    billing.SESSION_USES,
)
RECORDS = (accounts.ERASED_PARTS, accounts.KEY_USES, audit.AUDIT_ENTRIES)
#: of the pool, by job: they end by themselves or stay, and have identifiers alone
OF_THE_POOL = (jobs.PLACEMENTS, jobs.SEATS, jobs.ATTEMPT_TIMES)


def test_security_h4_every_table_of_tenants_goes_or_stays_for_a_reason() -> None:
    deleted = {table.name for tables in ROWS.values() for table in tables}
    kept = {table.name for table in (*BILLS, *RECORDS, *OF_THE_POOL)}
    assert not deleted & kept
    of_tenants = {table.name for table in TABLES if "tenant" in table.columns}
    assert of_tenants - deleted - kept == set()


def test_security_h4_rows_go_with_the_event_of_their_own_journal() -> None:
    deletes = delete_erased(header("dataset"), FilesErased())
    assert Delete("files", {"tenant": "acme"}) in deletes
