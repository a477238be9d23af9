"""Hosts a decider: one owner for each partition that the group assigns to this process."""

import asyncio
import logging
import os
import socket
from collections.abc import Callable
from typing import Generic, TypeVar

from tunery.runtime.bus.abstract import Unavailable
from tunery.runtime.hosts.owner import PartitionOwner, Settled
from tunery.runtime.ids import NewId, new_id
from tunery.runtime.journal import alarm
from tunery.runtime.journal.acceptance import PartitionStopped
from tunery.runtime.journal.ports import Limits, Parts
from tunery.runtime.verbs import Aggregate

LOG = logging.getLogger("tunery.journal")
READY_POLL_MS = 20

S = TypeVar("S")


class AggregateHost(Generic[S]):
    """`run` until cancelled. A partition that stops is named in `stopped`; the others go on."""

    def __init__(
        self,
        runtime: Parts,
        aggregate: Aggregate[S],
        *,
        owner: str | None = None,
        fresh_id: NewId = new_id,
        limits: Limits | None = None,
        on_settled: Callable[[Settled], None] = lambda _: None,
    ) -> None:
        """`on_settled` is told of every command decided here, for figures; it must not block."""
        self.name = f"{aggregate.stream.name} owner"
        self.stream = aggregate.stream.name
        self.stopped: dict[int, PartitionStopped] = {}
        self.owners: dict[int, PartitionOwner[S]] = {}
        self._runtime, self._aggregate, self._fresh_id = runtime, aggregate, fresh_id
        self._owner = owner or f"{runtime.name}@{socket.gethostname()}:{os.getpid()}"
        self._limits, self._on_settled = limits or Limits(), on_settled
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._assigned = False

    async def run(self) -> None:
        """Raises what no rule foresees; the process starts the host again."""
        stream = self._aggregate.stream
        while True:
            try:
                async with (
                    asyncio.TaskGroup() as group,
                    self._runtime.log.membership(
                        f"tunery.{stream.name}.owner", stream.commands.name
                    ) as changes,
                ):
                    async for partitions in changes:
                        await self._own(partitions, group)
            except* Unavailable as outage:
                LOG.warning("%s: the log does not answer: %s", self.name, outage.exceptions[0])
            finally:
                self._tasks.clear()
                self.owners.clear()
            await self._runtime.clock.sleep(self._limits.retry_ms)

    async def ready(self) -> None:
        """Return when every assigned partition is claimed and folded, or has stopped."""
        while not self._assigned or not all(
            owner.serving or partition in self.stopped for partition, owner in self.owners.items()
        ):
            await self._runtime.clock.sleep(READY_POLL_MS)

    async def _own(self, partitions: frozenset[int], group: asyncio.TaskGroup) -> None:
        """Lazy revocation: what stays assigned is not disturbed by a rebalance."""
        gone = [self._tasks.pop(number) for number in sorted(self._tasks.keys() - partitions)]
        for task in gone:
            task.cancel()
        for number in sorted(self.owners.keys() - partitions):
            del self.owners[number]
        for number in sorted(partitions - self._tasks.keys()):
            self.stopped.pop(number, None)
            alarm.silence(self.name, self.stream, number)
            self.owners[number] = PartitionOwner(
                self._runtime,
                self._aggregate,
                number,
                self._owner,
                self._fresh_id,
                self._limits,
                self._on_settled,
            )
            self._tasks[number] = group.create_task(self._guard(number, self.owners[number]))
        self._assigned = True

    async def _guard(self, partition: int, owner: PartitionOwner[S]) -> None:
        try:
            await owner.run()
        except PartitionStopped as stopped:
            self.stopped[partition] = stopped
            alarm.sound(self.name, self.stream, stopped)
