"""Deleting old rows; what bills are made of is never among them."""

from typing import Any, Final

import asyncpg

from services.gateway.views.ports import DaysKept
from services.gateway.views.retention import Retention
from services.gateway.views.table import Table
from services.gateway.views.tables import billing
from services.gateway.views.tables.jobs import JOBS, USAGE
from tunery.runtime.clock import SystemClock


class Statements:
    """A pool that has one ended job, and notes the statements that it gets."""

    def __init__(self) -> None:
        self.executed: list[str] = []
        self.fetched: list[tuple[Any, ...]] = []

    async def fetch(self, query: str, *arguments: Any) -> list[dict[str, Any]]:
        self.fetched.append(arguments)
        if "DISTINCT pool" in query:
            return [{"pool": "default"}]
        first = arguments[0] == -1
        return [{"tenant": "a", "id": "j", "finished_at": 5}] if first else []

    async def execute(self, query: str, *_: Any) -> str:
        self.executed.append(query)
        return "DELETE 0"


class NoTables(Statements):
    async def fetch(self, query: str, *arguments: Any) -> list[dict[str, Any]]:
        self.fetched.append(arguments)
        raise asyncpg.UndefinedTableError("relation does not exist")


KEPT: Final = DaysKept(steps=90, history=400, deliveries=90, audit=1_096)


async def test_tables_that_are_not_made_yet_are_left_to_the_next_round() -> None:
    pool = NoTables()
    await Retention(pool, SystemClock(), KEPT).work()  # type: ignore[arg-type]  # what it uses of it
    assert len(pool.fetched) == 1


async def test_no_statement_deletes_what_bills_are_made_of_or_the_job_itself() -> None:
    pool = Statements()
    await Retention(pool, SystemClock(), KEPT).work()  # type: ignore[arg-type]  # what it uses of it
    deleted = {query.split()[2].strip('"') for query in pool.executed}
    money = {table.name for table in vars(billing).values() if isinstance(table, Table)}
    assert len(money) >= 7
    assert not deleted & (money | {USAGE.name, JOBS.name, "tenants", "ledger"})
    assert {"steps", "lines", "job_history", "job_events", "deliveries"} <= deleted
    # after one batch it asks for jobs that ended later
    assert [arguments[:2] for arguments in pool.fetched[:2]] == [(-1, ""), (5, "j")]
