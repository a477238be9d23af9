"""The hosts that fill the read models. They know nothing of HTTP, and need no other part of it."""

from collections.abc import Sequence
from typing import Final

from schemas.access import VIEWS_VERSION
from schemas.topics import ACCOUNT, DATASET, JOB, MODEL, POOL, SESSION
from services.gateway.views.audit import AUDIT_ROWS
from services.gateway.views.old_versions import OldVersions
from services.gateway.views.ports import DaysKept, Views
from services.gateway.views.projections.journals import DDL, TABLES, notify, project
from services.gateway.views.reading import NAME
from services.gateway.views.reports import VIEWS
from services.gateway.views.retention import Retention
from services.gateway.views.telemetry import telemetry_reader
from tunery.platform.ports import Runtime
from tunery.platform.store.postgres import PostgresStore
from tunery.runtime.hosts.abstract import Host
from tunery.runtime.hosts.projector import Projection, Projector
from tunery.runtime.hosts.topic_reader import TopicReader

VIEWS_PROJECTION: Final = Projection(
    name=NAME,
    version=VIEWS_VERSION,
    streams=(ACCOUNT, DATASET, JOB, POOL, MODEL, SESSION),
    project=project,
    ddl=DDL,
    once_built=VIEWS,
    tables=tuple(table.name for table in TABLES),
    command_results=True,
    notify=notify,
)


def view_hosts(runtime: Runtime, views: Views, kept: DaysKept) -> Sequence[Host]:
    """Return the hosts that project six journals, read the topics of telemetry and audit, and
    delete what is older than it is kept, or of a version that nobody reads.
    """
    store = runtime.store
    return (
        Projector(runtime, VIEWS_PROJECTION),
        telemetry_reader(runtime, views),
        TopicReader(runtime, AUDIT_ROWS),
        *(
            (Retention(store.pool, runtime.clock, kept), OldVersions(store, runtime.clock))
            if isinstance(store, PostgresStore)
            else ()
        ),
    )
