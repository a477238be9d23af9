"""Writes what nodes should know to the topic `assignments`, from the state of the pools' owners.

The journal is the source of truth, and this a projection: an owner that begins a term writes all
of it anew, so nothing is lost with the process of its predecessor. A predecessor that does not
know yet that it is none writes records with lower offsets, which agents take for late.
"""

import asyncio
import logging
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Final

import msgspec
from msgspec.structs import replace

from schemas.assignments import Assigned, AssignedAll, AssignedLease, LeaseOrder
from schemas.streams import KEY_NUMBER, NODE_PREFIX, agent_of
from schemas.topics import ASSIGNMENTS
from schemas.works import WorkForgotten, WorkKept
from services.scheduler.domain.pool.assigning import assigned_after, assigned_in
from services.scheduler.domain.pool.state import Pools
from tunery.platform.seal.orders import seal_order
from tunery.runtime.backoff import Backoff, retry
from tunery.runtime.bus.abstract import AppendUnknown, TooLarge, Unavailable, check_size
from tunery.runtime.bus.partitioner import partition_of
from tunery.runtime.bus.signing import node_keys
from tunery.runtime.hosts.owner import PartitionOwner, Settled
from tunery.runtime.journal.ports import JournalPorts
from tunery.runtime.telemetry.logs import log_event
from tunery.runtime.telemetry.trail import NO_TRAIL, Trail
from tunery.runtime.watchdog import beat

LOG: Final = logging.getLogger("tunery.scheduler")
RETRIES: Final = Backoff(100, 5_000)
LOOK_S: Final = 0.2  # whether an owner has begun a term
BATCH_MAX: Final = 500  # records of all partitions on the way at once
QUEUED_MAX: Final = 100_000  # more: all of it is written anew
TRAILS_MAX: Final = 50_000  # jobs of which the request is known; the oldest are dropped


class Assigning:
    """Implements `Host`. owners: those of the pools in this process, by partition."""

    name = "assignments of nodes"

    def __init__(
        self, runtime: JournalPorts, owners: Callable[[], Mapping[int, PartitionOwner[Pools]]]
    ) -> None:
        self._log, self._clock, self._keys = runtime.log, runtime.clock, runtime.keys
        self._owners = owners
        self._terms: dict[int, int] = {}  # claim under which all was written, by partition
        self._queue: deque[tuple[int, Assigned]] = deque()  # with the partition to write to
        self._wake = asyncio.Event()
        self._trails: dict[str, Trail] = {}  # of jobs, by what their works follow from

    def note(self, settled: Settled) -> None:
        """Queue what a decision leads to, unless all is written anew soon."""
        for event in settled.events:
            if isinstance(event, WorkKept):
                self._trails.setdefault(event.description.job_id, settled.trail)
                if len(self._trails) > TRAILS_MAX:
                    del self._trails[next(iter(self._trails))]
            elif isinstance(event, WorkForgotten):
                self._trails.pop(event.job_id, None)
        fold = self._owners()[settled.partition].settled
        if fold is not None and self._is_begun(settled.partition, fold.position.acceptance.epoch):
            for record in assigned_after(fold.state, settled.key, settled.events, settled.offset):
                self._put(record, fold.state)
        if len(self._queue) > QUEUED_MAX:
            self._queue.clear()
            self._terms.clear()
        if self._queue:
            self._wake.set()

    async def ready(self) -> None:
        """Return at once: no other host waits for this one."""

    async def run(self) -> None:
        """Write until cancelled; an outage is waited out."""
        while True:
            beat("waiting")
            self._begin_terms()
            if self._queue:
                await self._write()
                continue
            self._wake.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._wake.wait()

    def _is_begun(self, partition: int, epoch: int) -> bool:
        return self._terms.get(partition) == epoch

    def _begin_terms(self) -> None:
        """Queue all that nodes should know of the partitions that have a new owner here."""
        for partition, owner in self._owners().items():
            fold = owner.settled if owner.serving else None
            if fold is None or self._is_begun(partition, fold.position.acceptance.epoch):
                continue
            for record in assigned_in(fold.state, fold.position.offset - 1):
                self._put(record, fold.state)
            self._terms[partition] = fold.position.acceptance.epoch

    def _put(self, record: Assigned, pools: Pools) -> None:
        match record:
            case AssignedAll():
                for partition in range(ASSIGNMENTS.partitions or 0):
                    self._queue.append((partition, record))
            case AssignedLease(order=order) if order is not None:
                trail = self._trails.get(order.lease.job_id, NO_TRAIL)
                self._put_order(record, replace(order, **trail._asdict()), pools)
            case _:
                self._queue.append((_partition(record), record))

    def _put_order(self, record: AssignedLease, order: LeaseOrder, pools: Pools) -> None:
        """Queue an order, sealed where nodes have keys: those of its partition read it, too."""
        record = replace(record, order=order)
        if self._keys.nodes:
            node = pools[record.pool].nodes.get(record.node_id)
            number = f"{KEY_NUMBER}{node.key_number}" if node and node.key_number > 1 else ""
            principal = f"{NODE_PREFIX}{agent_of(record.node_id)}{number}"
            sealed = seal_order(order, node_keys(self._keys, principal))
            record = replace(record, order=None, sealed_order=sealed)
        self._queue.append((_partition(record), record))

    async def _write(self) -> None:
        """Write the oldest records, of each partition one after the other."""
        batch = list(islice(self._queue, BATCH_MAX))
        by_partition = defaultdict[int, list[tuple[bytes, bytes]]](list)
        for partition, record in batch:
            value = msgspec.json.encode(record)
            try:
                check_size(value)
            except TooLarge as error:  # the pool ends a lease that does not start
                log_event(LOG, logging.ERROR, "assignment.too_large", why=error)
            else:
                by_partition[partition].append((_key(record), value))
        await asyncio.gather(*(self._append(*group) for group in by_partition.items()))
        for _ in batch:
            self._queue.popleft()

    async def _append(self, partition: int, records: Sequence[tuple[bytes, bytes]]) -> None:
        """Append keys and values; again as a whole where some may be there: agents ignore those."""
        send = partial(self._log.send_all, ASSIGNMENTS.name, partition, records)
        await retry(send, (Unavailable, AppendUnknown), clock=self._clock, backoff=RETRIES)


def _key(record: Assigned) -> bytes:
    return b"" if isinstance(record, AssignedAll) else agent_of(record.node_id).encode()


def _partition(record: Assigned) -> int:
    return partition_of(_key(record), ASSIGNMENTS.partitions)
