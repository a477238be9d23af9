"""One task for each partition that a consumer group assigns to this process.

Owners and reactors share this loop: join the group, start and cancel tasks as partitions come and
go, join again after an outage. A partition that stops is noted and the others go on.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Final, TypeAlias

from tunery.runtime.bus.abstract import Unavailable
from tunery.runtime.journal import alarm
from tunery.runtime.journal.acceptance import PartitionStopped
from tunery.runtime.journal.ports import HostLimits, JournalPorts
from tunery.runtime.tasks import run_again
from tunery.runtime.telemetry.logs import log_event
from tunery.runtime.watchdog import beat

LOG: Final = logging.getLogger("tunery.hosts")

#: what runs one partition until it is cancelled; raises PartitionStopped
PartitionWork: TypeAlias = Callable[[], Coroutine[Any, Any, None]]


class AssignedPartitions:
    """The partitions of `topic` that the group `group` gives to this process, each in a task.

    `prepare` gets the numbers of newly assigned partitions, in order, and returns the work of each;
    `drop` is called with the number of one that was taken away. `stream` is what alarms name.
    """

    def __init__(
        self,
        runtime: JournalPorts,
        *,
        host: str,
        stream: str,
        group: str,
        topic: str,
        limits: HostLimits,
        prepare: Callable[[Sequence[int]], Awaitable[Mapping[int, PartitionWork]]],
        drop: Callable[[int], None] = lambda _: None,
    ) -> None:
        self.stopped: dict[int, PartitionStopped] = {}
        self.assigned = False  # the group has assigned partitions at least once
        self._log, self._clock, self._limits = runtime.log, runtime.clock, limits
        self._host, self._stream, self._group, self._topic = host, stream, group, topic
        self._prepare, self._drop = prepare, drop
        self._tasks: dict[int, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Serve what is assigned until cancelled; an outage of the log is waited out."""
        while True:
            beat("waiting")
            try:
                async with (
                    asyncio.TaskGroup() as tasks,
                    self._log.membership(self._group, self._topic) as changes,
                ):
                    async for partitions in changes:
                        await self._reassign(partitions, tasks)
            except* Unavailable as outage:
                log_event(
                    LOG,
                    logging.WARNING,
                    "host.log_unavailable",
                    host=self._host,
                    why=outage.exceptions[0],
                )
            finally:
                for partition in sorted(self._tasks):
                    self._drop(partition)
                self._tasks.clear()
            await self._clock.sleep(self._limits.retry_ms)

    async def _reassign(self, partitions: frozenset[int], tasks: asyncio.TaskGroup) -> None:
        """Lazy revocation: what stays assigned is not disturbed by a rebalance."""
        for partition in sorted(self._tasks.keys() - partitions):
            self._tasks.pop(partition).cancel()
            self._drop(partition)
        added = sorted(partitions - self._tasks.keys())
        works = await self._prepare(added) if added else {}
        for partition in added:
            self.stopped.pop(partition, None)
            alarm.silence(self._host, self._stream, partition)
            self._tasks[partition] = tasks.create_task(self._guard(partition, works[partition]))
        self.assigned = True

    async def _guard(self, partition: int, work: PartitionWork) -> None:
        try:
            await run_again(work, f"{self._host} {partition}")
        except PartitionStopped as stopped:
            self.stopped[partition] = stopped
            alarm.sound(self._host, self._stream, stopped)
