"""Hosts a decider: one owner for each partition that the group assigns to this process."""

import os
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Generic, TypeVar

from schemas.streams import PARTITIONS
from tunery.runtime.bus.groups import owner_group
from tunery.runtime.hosts.membership import AssignedPartitions, PartitionWork
from tunery.runtime.hosts.owner import PartitionOwner, Settled
from tunery.runtime.hosts.standby import READY_POLL_MS, Standbys
from tunery.runtime.ids import NewId, new_id
from tunery.runtime.journal.acceptance import Poison
from tunery.runtime.journal.ports import HostLimits, JournalPorts
from tunery.runtime.verbs import Aggregate

S = TypeVar("S")


class AggregateHost(Generic[S]):
    """`run` until cancelled. A partition that stops is named in `stopped`; the others go on."""

    def __init__(
        self,
        runtime: JournalPorts,
        aggregate: Aggregate[S],
        *,
        owner: str | None = None,
        fresh_id: NewId = new_id,
        limits: HostLimits | None = None,
        on_settled: Callable[[Settled], None] = lambda _: None,
    ) -> None:
        """`on_settled` gets every command decided here, for figures; it must not block."""
        self.name = f"{aggregate.stream.name} owner"
        self.stream = aggregate.stream.name
        self.owners: dict[int, PartitionOwner[S]] = {}
        self._runtime, self._aggregate, self._fresh_id = runtime, aggregate, fresh_id
        self._owner = owner or f"{runtime.name}@{socket.gethostname()}:{os.getpid()}"
        self._limits, self._on_settled = limits or HostLimits(), on_settled
        self._partitions = AssignedPartitions(
            runtime,
            host=self.name,
            stream=self.stream,
            group=owner_group(self.stream),
            topic=aggregate.stream.commands.name,
            limits=self._limits,
            prepare=self._prepare,
            drop=self._drop,
        )
        self._standbys = Standbys(runtime, aggregate, self._limits)
        self.stopped = self._partitions.stopped

    async def run(self) -> None:
        """Raises what no rule foresees; the process starts the host again.

        Journals are folded before a partition is asked for: until then another process decides.
        """
        try:
            self._follow(range(PARTITIONS))
            await self._standbys.caught_up()
            await self._partitions.run()
        finally:
            await self._standbys.stop()

    async def ready(self) -> None:
        """Return when every assigned partition is claimed and folded, or has stopped."""
        while not self._partitions.assigned or not all(
            owner.serving or partition in self.stopped for partition, owner in self.owners.items()
        ):
            await self._runtime.clock.sleep(READY_POLL_MS)

    def settled_states(self) -> Iterator[S]:
        """Yield the acknowledged state of each partition that is served. Thread-safe."""
        for owner in tuple(self.owners.values()):
            if owner.serving and owner.settled is not None:
                yield owner.settled.state

    async def _prepare(self, partitions: Sequence[int]) -> Mapping[int, PartitionWork]:
        for partition in partitions:
            self.owners[partition] = PartitionOwner(
                self._runtime,
                self._aggregate,
                partition,
                self._owner,
                self._fresh_id,
                self._limits,
                self._on_settled,
                partial(self._note_poison, partition),
                self._standbys,
            )
        return {partition: self.owners[partition].run for partition in partitions}

    def _note_poison(self, partition: int, poison: Poison | None) -> None:
        if poison is None:
            self._partitions.resume(partition)
        else:
            self._partitions.stop(partition, poison)

    def _drop(self, partition: int) -> None:
        del self.owners[partition]
        self._follow((partition,))

    def _follow(self, partitions: Iterable[int]) -> None:
        if self._limits.standby:
            self._standbys.follow(partitions)
