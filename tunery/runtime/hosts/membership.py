"""One task for each partition that a consumer group assigns to this process.

Owners and reactors share this loop: join the group, start and cancel tasks as partitions come and
go, join again after an outage. A partition that stops is noted and the others go on.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

from tunery.runtime.bus.abstract import Unavailable
from tunery.runtime.hosts.keeping import HostUnstoppable
from tunery.runtime.journal import alarm
from tunery.runtime.journal.acceptance import PartitionStopped
from tunery.runtime.journal.ports import HostLimits, JournalPorts
from tunery.runtime.tasks import CANCEL_MS_MAX, KeptTask, stop_tasks
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
        self._kept: dict[int, KeptTask[None]] = {}
        self._revoked: dict[asyncio.Task[None], None] = {}  # cancelled and not yet ended
        self._failed: asyncio.Future[None]  # the work of a partition ended, and must not

    async def run(self) -> None:
        """Serve what is assigned until cancelled; an outage of the log is waited out.

        Raises what the work of a partition raised; HostUnstoppable when it cannot be ended.
        """
        while True:
            beat("waiting")
            try:
                await self._serve()
            except Unavailable as outage:
                log_event(LOG, logging.WARNING, "host.log_unavailable", host=self._host, why=outage)
            await self._clock.sleep(self._limits.retry_ms)

    def stop(self, partition: int, error: PartitionStopped) -> None:
        """Note that a partition is not served, and sound the alarm."""
        self.stopped[partition] = error
        alarm.sound(self._host, self._stream, error)

    def resume(self, partition: int) -> None:
        """Note that a partition is served again."""
        self.stopped.pop(partition, None)
        alarm.silence(self._host, self._stream, partition)

    async def _serve(self) -> None:
        """Follow the group, with a task for each partition, until one of all these ends."""
        self._failed = asyncio.get_running_loop().create_future()
        following = KeptTask(self._follow, f"{self._host} assignments")
        try:
            await asyncio.wait((following.ended, self._failed), return_when=asyncio.FIRST_COMPLETED)
        finally:
            kept = (following, *(self._kept[number] for number in sorted(self._kept)))
            late = await stop_tasks((*(task.release() for task in kept), *self._revoked))
            for partition in sorted(self._kept):
                self._drop(partition)
            self._kept.clear()
        ends = [end for end in (following.ended, self._failed) if end.done()]
        errors = [error for end in ends if (error := end.exception()) is not None]
        if late:
            names = ", ".join(sorted(task.get_name() for task in late))
            raise HostUnstoppable(f"{names}: cancelled and did not end in {CANCEL_MS_MAX} ms")
        if errors:
            raise errors[0]

    async def _follow(self) -> None:
        """Raises Unavailable."""
        async with self._log.membership(self._group, self._topic) as changes:
            async for partitions in changes:
                await self._reassign(partitions)

    async def _reassign(self, partitions: frozenset[int]) -> None:
        """Change tasks to a new assignment; partitions that stay assigned keep running."""
        for partition in sorted(self._kept.keys() - partitions):
            self._revoke(self._kept.pop(partition).release())
            self._drop(partition)
        added = sorted(partitions - self._kept.keys())
        works = await self._prepare(added) if added else {}
        for partition in added:
            self.resume(partition)
            kept = KeptTask(works[partition], f"{self._host} {partition}")
            self._kept[partition] = kept
            kept.ended.add_done_callback(partial(self._note_end, partition, kept))
        self.assigned = True

    def _revoke(self, task: "asyncio.Task[None]") -> None:
        self._revoked[task] = None
        task.add_done_callback(self._revoked.pop)
        task.cancel()

    def _note_end(
        self, partition: int, kept: KeptTask[None], ended: "asyncio.Future[None]"
    ) -> None:
        """Note a partition that stopped; any other end of a task ends the run of the host."""
        error = ended.exception()
        if self._kept.get(partition) is not kept:
            return
        if isinstance(error, PartitionStopped):
            self.stop(partition, error)
        elif not self._failed.done():
            self._failed.set_exception(error or RuntimeError(f"{kept.name} ended by itself"))
