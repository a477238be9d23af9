"""Rows of the read models that are deleted once they are old: details of ended jobs, deliveries of
webhooks, the audit log. What bills are made of is kept for ever.

Rows are deleted in short statements over an index, some thousands at a time. Tables made anew from
the log have the old rows again until the next round.
"""

import logging
from typing import Any, Final

import asyncpg

from schemas.units import DAY_MS, HOUR_MS, Ms
from services.gateway.views.ports import DaysKept
from services.gateway.views.table import Table
from services.gateway.views.tables.accounts import DELIVERIES
from services.gateway.views.tables.audit import AUDIT_ENTRIES
from services.gateway.views.tables.jobs import (
    ATTEMPT_NODES,
    ATTEMPT_TIMES,
    JOB_EVENTS,
    JOB_HISTORY,
    JOBS,
    LINES,
    STEPS,
)
from tunery.platform.store.postgres import named_errors, touched_rows
from tunery.platform.store.rows import name
from tunery.runtime.clock import Clock
from tunery.runtime.hosts.periodic import PeriodicHost
from tunery.runtime.store.abstract import BadChange
from tunery.runtime.telemetry.logs import log_event
from tunery.runtime.watchdog import beat

LOG: Final = logging.getLogger("tunery.gateway")
EVERY_MS: Final[Ms] = HOUR_MS
JOBS_MAX: Final = 200  # ended jobs of one statement
ROWS_MAX: Final = 5_000  # other rows of one statement
ATTEMPTS_KEPT: Final = 10_000  # durations of attempts of each pool; estimates read the newest 500
FIRST: Final = (-1, "")

ENDED: Final = (
    f"SELECT tenant, id, finished_at FROM {JOBS.name} "  # noqa: S608  # names of ours
    "WHERE finished_at IS NOT NULL AND (finished_at, id) > ($1, $2) AND finished_at < $3 "
    f"ORDER BY finished_at, id LIMIT {JOBS_MAX}"
)
OF_JOBS: Final = (
    "DELETE FROM {table} USING unnest($1::text[], $2::text[]) AS ended (tenant, job_id) "
    "WHERE {table}.tenant = ended.tenant AND {table}.job_id = ended.job_id"
)
NODES_OF_JOBS: Final = f"DELETE FROM {ATTEMPT_NODES.name} WHERE job_id = ANY($1)"  # noqa: S608  # names of ours
DELIVERED: Final = (
    f"DELETE FROM {DELIVERIES.name} WHERE (tenant, id) IN (SELECT tenant, id "  # noqa: S608  # names of ours
    f"FROM {DELIVERIES.name} WHERE ended_at < $1 ORDER BY ended_at LIMIT {ROWS_MAX})"
)
# Entries are about in the order of their time: none is older where the first ones are not.
AUDITED: Final = (
    f"DELETE FROM {AUDIT_ENTRIES.name} WHERE id IN (SELECT id FROM (SELECT id, at "  # noqa: S608  # names of ours
    f"FROM {AUDIT_ENTRIES.name} ORDER BY sequence, id LIMIT {ROWS_MAX}) AS first WHERE at < $1)"
)
TIMED: Final = (
    f"DELETE FROM {ATTEMPT_TIMES.name} AS old WHERE (pool, id) IN (SELECT pool, id "  # noqa: S608  # names of ours
    f"FROM {ATTEMPT_TIMES.name} WHERE pool = $1 ORDER BY sequence DESC, id DESC "
    f"OFFSET {ATTEMPTS_KEPT} LIMIT {ROWS_MAX})"
)
POOLS: Final = f"SELECT DISTINCT pool FROM {ATTEMPT_TIMES.name}"  # noqa: S608  # names of ours


class Retention(PeriodicHost):
    """Deletes rows that are older than they are to be kept, each hour."""

    name = "retention"
    every_ms = EVERY_MS

    def __init__(self, pool: "asyncpg.Pool[Any]", clock: Clock, kept: DaysKept) -> None:
        super().__init__(clock)
        self._pool, self._kept = pool, kept
        self._done: dict[str, tuple[Ms, str]] = {}  # end and id of the last job, by table
        self._day = 0

    async def work(self) -> None:
        """Delete what is too old now. Raises StoreUnavailable."""
        try:
            await self._delete()
        except BadChange as error:
            if not isinstance(error.__cause__, asyncpg.UndefinedTableError):
                raise
            # The projector is making its tables. The next round finds them.

    async def _delete(self) -> None:
        now = self._clock.now_ms()
        if now // DAY_MS != self._day:  # tables may have been made anew since: from the beginning
            self._day = now // DAY_MS
            self._done.clear()
        deleted = {
            "steps": await self._of_jobs(now, self._kept.steps, (STEPS, LINES), nodes=True),
            "history": await self._of_jobs(now, self._kept.history, (JOB_HISTORY, JOB_EVENTS)),
            "deliveries": await self._all(DELIVERED, now - self._kept.deliveries * DAY_MS),
            "audit": await self._all(AUDITED, now - self._kept.audit * DAY_MS),
            "attempts": 0,
        }
        for record in await self._fetch(POOLS):
            deleted["attempts"] += await self._all(TIMED, record["pool"])
        if any(deleted.values()):
            log_event(LOG, logging.INFO, "retention.deleted", None, **deleted)

    async def _of_jobs(
        self, now: Ms, days: int, tables: tuple[Table[Any], ...], *, nodes: bool = False
    ) -> int:
        """Delete rows of jobs that ended `days` days ago, and return their number."""
        deleted = 0
        while True:
            done = self._done.get(tables[0].name, FIRST)
            jobs = await self._fetch(ENDED, *done, now - days * DAY_MS)
            if not jobs:
                return deleted
            tenants, ids = [job["tenant"] for job in jobs], [job["id"] for job in jobs]
            for table in tables:
                deleted += await self._run(OF_JOBS.format(table=name(table.name)), tenants, ids)
            if nodes:
                deleted += await self._run(NODES_OF_JOBS, ids)
            self._done[tables[0].name] = (jobs[-1]["finished_at"], jobs[-1]["id"])

    async def _all(self, query: str, *arguments: Any) -> int:
        """Run a statement until it deletes no more; how many rows it has deleted."""
        deleted = 0
        while count := await self._run(query, *arguments):
            deleted += count
        return deleted

    async def _fetch(self, query: str, *arguments: Any) -> list[asyncpg.Record]:
        with named_errors():
            return await self._pool.fetch(query, *arguments)

    async def _run(self, query: str, *arguments: Any) -> int:
        beat("working")
        with named_errors():
            return touched_rows(await self._pool.execute(query, *arguments))
