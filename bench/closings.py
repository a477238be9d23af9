"""Closes the month of many tenants over a real Kafka and PostgreSQL (`bench.scale`)."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import count, islice
from typing import Final
from unittest.mock import patch

from bench.core import settings_of
from bench.measures import data_folder
from schemas.account import (
    CreateTenant,
    ImportPrices,
    InvoiceClosed,
    Limits,
    PeriodEnded,
    PlanSet,
    PlanTerms,
    SetPlan,
)
from schemas.billing import PrepaidCredit
from schemas.envelope import Message
from schemas.prepaid import GrantPrepaid, PrepaidExpired, PrepaidGranted
from schemas.sealed import Sealed
from schemas.streams import GLOBAL, PARTITIONS
from schemas.topics import STREAMS, TOPICS
from schemas.units import DAY_MS, HOUR_MS, Ms
from services.billing.adapters.ledger import PostgresBooks
from services.billing.adapters.prices import read_imports
from services.billing.app import ACCOUNTS, LEDGER, STORAGE, TENANTS
from services.billing.effect import CLOSINGS_AT_ONCE, close
from services.billing.project import CLOSE
from tunery.billing.periods import period_of
from tunery.local.stack import stack
from tunery.platform.bus.kafka import KafkaLog
from tunery.platform.connections import patient_kafka_settings
from tunery.platform.memory_servers import memory_servers
from tunery.platform.store.postgres import PostgresStore, open_store, pool_of
from tunery.runtime.bus.abstract import Appended, Log, Record
from tunery.runtime.bus.partitioner import partition_of
from tunery.runtime.bus.sender import Sender
from tunery.runtime.clock import SystemClock
from tunery.runtime.hosts.abstract import Host
from tunery.runtime.hosts.effects import EffectHost
from tunery.runtime.hosts.owner import PartitionOwner, Settled
from tunery.runtime.hosts.projector import Projector
from tunery.runtime.ids import new_id
from tunery.runtime.journal.ports import HostLimits

WAIT_S: Final = 600.0
PARTITION: Final = 3
REPEATS: Final = 5
MANY: Final = 100_000
CREATED_AT_ONCE, CREATED_S_MAX = 500, 3_600.0
PREPAID_MICRO: Final = 1_000_000_000
#: What happens to each tenant at the month's turn.
TURN: Final[Mapping[type, str]] = {
    PeriodEnded: "ended",
    PlanSet: "planned",
    InvoiceClosed: "closed",
    PrepaidExpired: "expired",
}
TODOS: Final = """
INSERT INTO todos (kind, id, projection, key, tenant, body)
SELECT $1, n::text, 'tenants', 'k', 't' || n, '' FROM generate_series(1, $2::int) AS n
"""
TRANSACTIONS: Final = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
CONNECTIONS: Final = 8  # of a service to PostgreSQL, unless it is set otherwise
#: Rows before the first record of an empty journal, which is how far the ledger has read.
USE: Final = """
INSERT INTO ledger
SELECT $3, 0, -1, 'default', number, $2 + hour, 'usage', '', tenant, 'ftjob-' || tenant, 1, 'train',
    'standard', '2026-11', 1000, 1000, 0
FROM unnest($1::text[]) WITH ORDINALITY AS t (tenant, number)
CROSS JOIN generate_series(0, 3) AS hour
"""


class ShiftedClock(SystemClock):
    """The clock of a process and of its broker, which may be moved on."""

    ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms


def names_of(partition: int) -> Iterator[str]:
    return (name for name in map("t{}".format, count()) if partition_of(name.encode()) == partition)


async def until(condition: Callable[[], bool], wait_s: float = WAIT_S) -> float:
    """Raises TimeoutError."""
    began = time.monotonic()
    async with asyncio.timeout(wait_s):
        while not condition():  # noqa: ASYNC110  # conditions look at many things
            await asyncio.sleep(0.02)
    return time.monotonic() - began


async def closings(tenants: int, minutes: float) -> dict[str, float]:
    """Bill `tenants` tenants over servers of their own, for at most `minutes`."""
    clock = ShiftedClock()
    with data_folder() as folder:
        async with stack(folder) as running:
            log = KafkaLog(patient_kafka_settings(settings_of(running)))
            store = await open_store(running.postgres_dsn, "billing", CONNECTIONS)
            try:
                await log.create(TOPICS, PARTITIONS)
                with broker_with(clock):
                    figures = await close_months(store, tenants, log, clock, minutes)
                return {**figures, **await _leasing(store)}
            finally:
                await store.close()
                await log.close()


@contextmanager
def broker_with(clock: ShiftedClock) -> Iterator[None]:
    """Let the broker's timestamps be as far ahead as this clock is: they are moved as they come."""

    def moved(offset: int, timestamp: Ms) -> Appended:
        return Appended(offset, timestamp + clock.ahead_ms)

    def moved_record(partition: int, offset: int, timestamp: Ms, *body: bytes) -> Record:
        return Record(partition, offset, timestamp + clock.ahead_ms, *body)

    with (
        patch("tunery.platform.bus.kafka_producer.Appended", moved),
        patch("tunery.platform.bus.kafka_reader.Record", moved_record),
    ):
        yield


async def close_months(
    store: PostgresStore,
    tenants: int,
    log: Log | None = None,
    clock: ShiftedClock | None = None,
    minutes: float = WAIT_S / 60,
) -> dict[str, float]:
    """Close a month of `tenants` tenants in the tables of this store.

    log: in memory unless given; clock: of the process and of the broker.
    """
    clock = clock or ShiftedClock()
    servers = await memory_servers(clock)
    log = log or servers.log
    sender = Sender(log, STREAMS)
    runtime = replace(servers.runtime("billing"), store=store, log=log, sender=sender)
    await sender.send("account", GLOBAL, GLOBAL, _import(), partition=PARTITION)
    done = MonthTurn()
    owner = PartitionOwner(runtime, ACCOUNTS, PARTITION, "bench", new_id, HostLimits(), done.note)
    books = PostgresBooks(store, pool_of(store))
    hosts: tuple[Host, ...] = (
        *(Projector(runtime, projection) for projection in (TENANTS, LEDGER, STORAGE)),
        EffectHost(runtime, (close(log, books),)),
    )
    tasks = [asyncio.create_task(host.run()) for host in hosts]
    tasks.append(asyncio.create_task(owner.run()))
    for host in hosts:
        await host.ready()
    month, began = period_of(clock.now_ms()), time.monotonic()
    names = await create_tenants(sender, tenants, last_month=month.name)
    await until(lambda: done.counts["granted"] >= tenants, CREATED_S_MAX)
    created_s = time.monotonic() - began
    await _use(store, names, clock.now_ms() // HOUR_MS)
    clock.ahead_ms = month.end_ms + 3 * DAY_MS - clock.now_ms()  # one month ends, not two
    statements = await _statements(store)
    done.begin()
    cpu_s = time.process_time()
    with suppress(TimeoutError):
        await until(lambda: done.is_complete(tenants), minutes * 60)
    cpu_s = time.process_time() - cpu_s
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    closed = done.counts["closed"]
    statements = await _statements(store) - statements
    return {
        "tenants": tenants,
        "created_after_s": round(created_s, 1),
        **done.figures(),
        "cpu_s": round(cpu_s, 1),
        "closings_per_s": round(closed / done.seconds["closed"], 1) if closed else 0,
        "statements_per_closing": round(statements / max(closed, 1), 2),
    }


class MonthTurn:
    """How many tenants have come how far, and after how many seconds the last of them."""

    def __init__(self) -> None:
        self.counts, self.seconds = Counter[str](), dict.fromkeys(TURN.values(), 0.0)
        self._began = 0.0

    def begin(self) -> None:
        self._began = time.monotonic()

    def note(self, done: Settled) -> None:
        for event in done.events:
            if isinstance(event, PrepaidGranted):
                self.counts["granted"] += 1
            elif name := TURN.get(type(event)):
                self.counts[name] += 1
                self.seconds[name] = time.monotonic() - self._began

    def is_complete(self, tenants: int) -> bool:
        return all(self.counts[name] >= tenants for name in TURN.values())

    def figures(self) -> dict[str, float]:
        return {
            key: value
            for name, seconds in self.seconds.items()
            for key, value in ((name, self.counts[name]), (f"{name}_after_s", round(seconds, 1)))
        }


async def _statements(store: PostgresStore) -> int:
    """Transactions of the database so far; each of billing's is one round trip."""
    pool = pool_of(store)
    await pool.execute("SELECT pg_stat_force_next_flush()")
    return int(await pool.fetchval(TRANSACTIONS))


async def _leasing(store: PostgresStore) -> dict[str, float]:
    """How long it takes to lease rows when 100,000 tenants have one each to do."""
    await pool_of(store).execute(TODOS, CLOSE, MANY)
    await pool_of(store).execute("ANALYZE todos")
    times = []
    for _ in range(REPEATS):
        began = time.monotonic()
        rows = await store.lease_rows(CLOSE, CLOSINGS_AT_ONCE, DAY_MS)
        times.append((time.monotonic() - began) * 1e3)
        assert len(rows) == CLOSINGS_AT_ONCE
    return {"lease_of_100000_ms": round(min(times), 1)}


async def create_tenants(
    sender: Sender, tenants: int, last_month: str | None = None
) -> Sequence[str]:
    """Tenants of one partition.

    last_month: of a prepaid credit that each of them has, with a plan for the month after.
    """
    terms = PlanTerms(
        lane="standard",
        limits=Limits(soft_gpu_ms=1, hard_gpu_ms=2, concurrency=1),
        price_version="2026-11",
    )
    names = list(islice(names_of(PARTITION), tenants))
    sealed = Sealed(key_id="", nonce=b"", ciphertext=b"")
    commands: list[Message] = [CreateTenant(name=sealed, terms=terms)]
    if last_month is not None:
        credit = PrepaidCredit(
            reference="bench", amount_micro=PREPAID_MICRO, currency="EUR", last_month=last_month
        )
        commands += [SetPlan(terms=terms, start="next_month"), GrantPrepaid(credit=credit)]

    async def create(name: str) -> None:
        for command in commands:
            await sender.send("account", name, name, command)

    for first in range(0, tenants, CREATED_AT_ONCE):
        await asyncio.gather(*map(create, names[first : first + CREATED_AT_ONCE]))
    return names


def _import() -> ImportPrices:
    (ours,) = read_imports()
    return ImportPrices(book=ours.book, sha256=ours.sha256)


async def _use(store: PostgresStore, names: Sequence[str], hour_utc: int) -> None:
    """Four hours of a training each."""
    await pool_of(store).execute(USE, names, hour_utc, PARTITION)
    await pool_of(store).execute("ANALYZE ledger")
