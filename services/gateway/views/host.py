"""The hosts that fill the read models. They know nothing of HTTP, and need no other part of it."""

import logging
from collections.abc import Sequence, Set
from typing import Final

from schemas.access import VIEWS_VERSION
from schemas.topics import ACCOUNT, DATASET, JOB, MODEL, POOL, SESSION
from schemas.units import Ms
from services.gateway.views.audit import AUDIT_ROWS
from services.gateway.views.ports import DaysKept, Views
from services.gateway.views.projections.journals import DDL, TABLES, notify, project
from services.gateway.views.reading import NAME, behind
from services.gateway.views.retention import Retention
from services.gateway.views.telemetry import telemetry_reader
from tunery.platform.ports import Runtime
from tunery.platform.store.generations import drop_schema, unused_schemas
from tunery.platform.store.postgres import PostgresStore, named_errors
from tunery.platform.store.reports import views_ddl
from tunery.runtime.clock import Clock
from tunery.runtime.hosts.abstract import Host
from tunery.runtime.hosts.periodic import PeriodicHost
from tunery.runtime.hosts.projector import Projection, Projector
from tunery.runtime.hosts.topic_reader import TopicReader
from tunery.runtime.telemetry.logs import log_event
from tunery.runtime.watchdog import beat

# Views of the gateway's rows for readers: jobs and budgets of tenants, without texts of theirs.
#
# A list price is that of `cost_summary`, for jobs whose price has rates and for those without. It
# is none until something was billed.

VIEWS: Final = views_ddl(
    "gateway",
    {
        "jobs": """
            SELECT tenant, id AS job_id, lane, phase, outcome, failure ->> 'code' AS failure,
                spec -> 'base' ->> 'base_id' AS base, (spec ->> 'slots')::integer AS slots,
                to_timestamp(created_at / 1000.0) AS created_at,
                to_timestamp(started_at / 1000.0) AS started_at,
                to_timestamp(finished_at / 1000.0) AS finished_at,
                (started_at - created_at) / 1000.0 AS wait_s,
                (billable_gpu_ms - lost_gpu_ms) / 3600000.0 AS net_gpu_hours,
                lost_gpu_ms / 3600000.0 AS credited_gpu_hours,
                spec -> 'price' ->> 'currency' AS currency,
                (round(greatest(0, coalesce(micro_gpu_ms, (billable_gpu_ms - lost_gpu_ms)
                    * (spec #>> '{price,gpu_hour_micro}')::numeric)) / 3600000.0)
                    + round(coalesce(billed_tokens
                    * (spec #>> '{price,token_micro_per_million}')::numeric, 0) / 1000000))
                    / 1000000 AS list_price
            FROM jobs WHERE created_at IS NOT NULL""",
        "budgets": """
            SELECT tenant, id AS budget_id, month, currency,
                (use ->> 'used_micro')::numeric / 1000000 AS used,
                (use ->> 'held_micro')::numeric / 1000000 AS held,
                max_amount_micro / 1000000.0 AS amount_limit,
                (use ->> 'used_gpu_ms')::numeric / 3600000 AS used_gpu_hours,
                (use ->> 'held_gpu_ms')::numeric / 3600000 AS held_gpu_hours,
                max_gpu_ms / 3600000.0 AS gpu_hours_limit,
                coalesce((alert ->> 'percent')::integer, 0) AS reached_percent
            FROM budgets WHERE set_at IS NOT NULL""",
    },
)


LOG: Final = logging.getLogger("tunery.gateway")
EVERY_MS: Final[Ms] = 600_000
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


class OldVersions(PeriodicHost):
    """Implements `Host`. A schema is dropped if no process is connected to it in two rounds: a
    process finds its rows after a restart.
    """

    name = "old versions of views"
    every_ms = EVERY_MS

    def __init__(self, store: PostgresStore, clock: Clock) -> None:
        super().__init__(clock)
        self._store = store
        self._unused: Set[str] = frozenset()

    async def work(self) -> None:
        """Look at the schemas once. Raises StoreUnavailable."""
        if await behind(self._store):
            return
        with named_errors():
            unused = await unused_schemas(self._store.pool, self._store.schema)
            for schema in self._unused & set(unused):
                beat("working")
                await drop_schema(self._store.pool, schema)
                log_event(LOG, logging.INFO, "views.version_dropped", schema=schema)
        self._unused = frozenset(unused) - self._unused
