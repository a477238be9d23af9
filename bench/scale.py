"""Measures what grows with an installation: nodes, tenants, and what a stopped partition costs.

    python -m bench.scale [--nodes 10000] [--tenants 12500] [--json]
    python -m bench.scale --months [--closings 100000] [--minutes 10] [--json]

* the watcher of heartbeats over a log in memory, beside nodes that beat once a second: how often it
  looks and asks for ends, and when it reports the node that never beat;
* one killed lease, in a watcher of 1,000, 5,000 and 10,000 nodes with eight leases each;
* an observation of ten nodes, decided and folded in pools of 25, 50 and 100 full nodes;
* the month's end of all tenants of one partition, through the owner of production: eight partitions
  have eight times as many in the same time, where they have their own processors;
* the month's end of 100,000 tenants over a real Kafka and a real PostgreSQL, with `--months` only
  that: each has a plan to come, a prepaid credit that expires and a job in the ledger. Owner,
  projections and effect of billing are one process for all of them. Printed are how many months
  ended, plans came into force, months were closed and credits expired within the minutes, and
  after how many seconds the last one of each was; how long the process computed; what is sent to
  the database for a closing, projections included; one lease of rows while 100,000 tenants wait;
* how long a partition stands once the command that stops it is refused.

But for closings the log is in memory and acknowledges at once: a broker adds its own time.
"""

import argparse
import asyncio
import json
import logging
import sys
import time
from collections.abc import Mapping, Sequence
from time import process_time_ns
from typing import Any, Final
from uuid import uuid4

import msgspec

from bench.closings import (
    MANY,
    PARTITION,
    ShiftedClock,
    closings,
    create_tenants,
    names_of,
    until,
)
from bench.full_pool import FullPool
from examples.first_stream import SEATS, SEATS_AGGREGATE
from schemas.account import (
    PeriodEnded,
    ResumeTenant,
)
from schemas.envelope import Envelope, Message, Source
from schemas.node import LeaseSeen, NodeDescription, NodeSeen
from schemas.pool import (
    LeaseGranted,
    LeaseKilled,
    LeaseMember,
    LeaseRef,
    NodeRegistered,
    ObserveNodes,
    Token,
)
from schemas.reasons import ending
from schemas.streams import PARTITIONS
from schemas.telemetry import Heartbeat
from schemas.topics import HEARTBEATS, STREAMS, TOPICS
from schemas.topics import POOL as POOL_STREAM
from schemas.units import DAY_MS, HOUR_MS
from services.billing.app import ACCOUNTS
from services.scheduler.domain.liveness import Sightings
from services.scheduler.settings import SchedulerSettings
from services.scheduler.watch import Watcher
from simulator.control_plane.samples import POOL, T0
from simulator.event_core.streams import CountSeats
from tunery.billing.periods import period_of
from tunery.runtime.blobs.memory import MemoryBlobs
from tunery.runtime.bus.memory import MemoryLog
from tunery.runtime.bus.partitioner import partition_of
from tunery.runtime.bus.sender import Sender
from tunery.runtime.bus.signing import UNSIGNED
from tunery.runtime.hosts.owner import PartitionOwner, Settled
from tunery.runtime.ids import new_id
from tunery.runtime.journal.acceptance import Poison
from tunery.runtime.journal.codec import encode
from tunery.runtime.journal.ports import HostLimits
from tunery.runtime.journal.refusals import refusal_of, refusing_claim
from tunery.runtime.levels import LogLevels

NODES, TENANTS_OF_PARTITION, LEASES_OF_NODE = 10_000, 12_500, 8
MINUTES: Final = 10.0
KILLED_AT: Final = (1_000, 5_000, 10_000)
POOLS_OF: Final = (25, 50, 100)
OBSERVED: Final = 10
REPEATS: Final = 5


class CountedLog(MemoryLog):
    """A log that counts requests for ends. It is a process's `Runtime`, too."""

    name = "bench"
    keys = UNSIGNED
    levels = LogLevels()

    def __init__(self) -> None:
        self.moved = ShiftedClock()
        super().__init__(self.moved)
        self.log, self.blobs, self.requests = self, MemoryBlobs(), 0
        self.sender = Sender(self, STREAMS)

    async def ends(self, topic: str, partitions: Sequence[int]) -> Mapping[int, int]:
        self.requests += 1
        return await super().ends(topic, partitions)


def registered(name: str) -> NodeRegistered:
    """A node of eight devices."""
    return NodeRegistered(
        node=NodeDescription(
            node_id=name, incarnation="i", slots=LEASES_OF_NODE, device="cuda", memory_bytes=1
        )
    )


def lease_of(number: int) -> LeaseRef:
    """The reference of a lease with this number."""
    return LeaseRef(
        token=Token(pool=POOL, lease=number),
        tenant="acme",
        job_id=f"ftjob-{number}",
        attempt=1,
        role="train",
        lane="standard",
        price_version="2026-11",
    )


def watched(nodes: int) -> Sightings:
    """Return a watcher's state for `nodes` nodes with eight leases each."""
    sightings = Sightings(10_000, 900_000)
    for node in range(nodes):
        name = f"n{node:05}"
        sightings.fold_event(POOL, registered(name), T0)
        member = LeaseMember(node_id=name, incarnation="i", slots=1, devices=(0,))
        for lease in range(LEASES_OF_NODE * node, LEASES_OF_NODE * (node + 1)):
            granted = LeaseGranted(lease=lease_of(lease), members=(member,), notice_ms=HOUR_MS)
            sightings.fold_event(POOL, granted, T0)
    sightings.due_observations()
    return sightings


def killed_lease(nodes: int) -> dict[str, float]:
    """Measure the watcher's cost of one killed lease: CPU microseconds, nodes visited."""
    sightings, costs = watched(nodes), []
    before = sightings.visits
    for number in range(REPEATS):
        killed = LeaseKilled(
            lease=lease_of(number), ended_by="platform", reason=ending("preempted")
        )
        began = process_time_ns()
        sightings.fold_event(POOL, killed, T0)
        sightings.due_observations()
        costs.append((process_time_ns() - began) / 1e3)
    return {
        "nodes": nodes,
        "us": round(min(costs), 1),
        "visits": (sightings.visits - before) / REPEATS,
    }


def observation(nodes: int) -> dict[str, float]:
    """Measure the cost of an observation of ten live nodes in a full pool, in CPU milliseconds."""
    pool = FullPool(nodes)
    leases = pool.pool.leases
    seen = tuple(
        NodeSeen(
            node_id=name,
            incarnation=name,
            last_seen=pool.at,
            silent=False,
            leases=tuple(
                LeaseSeen(lease=leases[key].number, elapsed_ms=1)
                for key in pool.pool.leases_of_nodes[name]
            ),
        )
        for name in sorted(pool.pool.nodes)[:OBSERVED]
    )
    decided, folded = [], []
    for _ in range(REPEATS):
        began = process_time_ns()
        events = pool.decide(ObserveNodes(seen=seen))
        decided.append(process_time_ns() - began)
        began = process_time_ns()
        pool.fold(events)
        folded.append(process_time_ns() - began)
    return {
        "nodes": nodes,
        "decide_ms": round(min(decided) / 1e6, 2),
        "fold_ms": round(min(folded) / 1e6, 2),
    }


async def dead_node(nodes: int) -> dict[str, float]:
    """When the watcher reports a node that never beats, beside others that beat once a second."""
    log, settings = CountedLog(), SchedulerSettings()
    await log.create(TOPICS, PARTITIONS)
    watcher = Watcher(log, settings.node_ttl_ms, settings.poll_ms, settings.idle_ms_max)
    names = [f"n{node:05}" for node in range(nodes)]
    for name in (*names, "dead"):
        watcher.sightings.fold_event(POOL, registered(name), log.moved.now_ms())
    commands = log.topics[POOL_STREAM.commands.name][partition_of(POOL.encode())]
    task = asyncio.create_task(watcher.run())
    began, sent = time.monotonic(), 0

    def is_reported() -> bool:
        nonlocal sent
        while sent < (time.monotonic() - began) * nodes:
            name = names[sent % nodes]
            body = Heartbeat(pool=POOL, node_id=name, incarnation="i", leases=(1,), idle_ms=(0,))
            where = partition_of(name.encode())
            log.put(HEARTBEATS.name, where, name.encode(), msgspec.json.encode(body))
            sent += 1
        return any(b'"dead"' in record.value for record in commands.records)

    took_s = await until(is_reported)
    lost = sum(record.value.count(b'"silent":true') for record in commands.records)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return {
        "nodes": nodes,
        "reported_after_s": round(took_s, 1),
        "reported_silent": lost,
        "offset_requests_per_s": round(log.requests / took_s, 1),
        "heartbeats_per_s": round(sent / took_s),
    }


async def months(tenants: int) -> dict[str, float]:
    """The month's end of `tenants` tenants of one partition."""
    log = CountedLog()
    await log.create(TOPICS, PARTITIONS)
    names = await create_tenants(log.sender, tenants)
    settled = ended = 0

    def note(done: Settled) -> None:
        nonlocal settled, ended
        settled += 1
        ended += any(isinstance(event, PeriodEnded) for event in done.events)

    owner = PartitionOwner(log, ACCOUNTS, PARTITION, "bench", new_id, HostLimits(), note)
    task = asyncio.create_task(owner.run())
    created_s = await until(lambda: settled >= tenants)
    now = log.moved.now_ms()
    log.moved.ahead_ms = period_of(now).end_ms + 3 * DAY_MS - now  # one month ends, not two
    await log.sender.send("account", names[0], names[0], ResumeTenant())
    took_s = await until(lambda: ended >= tenants)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return {
        "tenants": tenants,
        "commands_per_s": round(tenants / created_s),
        "months_per_s": round(tenants / took_s),
        "took_s": round(took_s, 1),
    }


async def refused_command() -> dict[str, float]:
    """From an operator's order until the command behind the refused one is decided."""
    log = CountedLog()
    await log.create([*TOPICS, SEATS.commands, SEATS.journal], PARTITIONS)
    key, events, stopped = next(names_of(PARTITION)), list[Settled](), list[Poison | None]()

    def put(body: Message, source: Source | None) -> bytes:
        raw = msgspec.Raw(msgspec.json.encode(body))
        command = encode(Envelope(id=str(uuid4()), key=key, tenant=key, body=raw, source=source))
        log.put(SEATS.commands.name, PARTITION, key.encode(), command)
        return command

    put(CountSeats(seats=1), Source("tally", 0, 0, 0, 0))
    put(CountSeats(seats=1), None)  # of a client: it is rejected, and stops nothing
    owner = PartitionOwner(
        log, SEATS_AGGREGATE, PARTITION, "a", new_id, HostLimits(), events.append, stopped.append
    )
    task = asyncio.create_task(owner.run())
    await until(lambda: bool(stopped))
    poison = log.topics[SEATS.commands.name][PARTITION].records[0]
    order = refusal_of(poison, 0, "bench", "it cannot be decided")
    claim = refusing_claim(SEATS, order, "bench", new_id(), UNSIGNED)
    log.put(SEATS.journal.name, PARTITION, b"", encode(claim))
    took_s = await until(lambda: len(events) >= 2)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return {"goes_on_after_s": round(took_s, 2)}


async def measure(nodes: int, tenants: int, closed: int, minutes: float) -> dict[str, Any]:
    """All figures. closed: tenants whose month is closed, within so many minutes."""
    return {
        "dead_node": await dead_node(nodes),
        "killed_lease": [killed_lease(size) for size in KILLED_AT],
        "observation": [observation(size) for size in POOLS_OF],
        "months": await months(tenants),
        "closings": await closings(closed, minutes),
        "refused_command": await refused_command(),
    }


def main() -> None:
    """Measure, and print the figures as lines or as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=NODES)
    parser.add_argument(
        "--tenants", type=int, default=TENANTS_OF_PARTITION, help="of one partition"
    )
    parser.add_argument("--closings", type=int, default=MANY, help="tenants of months that end")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="for them, at most")
    parser.add_argument("--months", action="store_true", help="only this")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    closed, minutes = options.closings, options.minutes
    if options.months:
        figures: dict[str, Any] = {"closings": asyncio.run(closings(closed, minutes))}
    else:
        figures = asyncio.run(measure(options.nodes, options.tenants, closed, minutes))
    if options.json:
        sys.stdout.write(json.dumps(figures) + "\n")
        return
    for name, figure in figures.items():
        for line in figure if isinstance(figure, list) else [figure]:
            said = ", ".join(f"{unit} {value}" for unit, value in line.items())
            sys.stdout.write(f"{name}: {said}\n")


if __name__ == "__main__":
    main()
