"""Folds of partitions that other processes own, so that a next owner has little left to read."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, NamedTuple, TypeVar

from tunery.runtime.bus.abstract import OutOfRange, Unavailable
from tunery.runtime.journal.acceptance import PartitionStopped, Unreadable
from tunery.runtime.journal.fold import Fold, advance_all
from tunery.runtime.journal.ports import HostLimits, JournalPorts
from tunery.runtime.journal.reader import JournalReader
from tunery.runtime.journal.snapshots import Snapshots
from tunery.runtime.tasks import KeptTask, stop_tasks
from tunery.runtime.verbs import Aggregate
from tunery.runtime.watchdog import beat

READY_POLL_MS = 20

S = TypeVar("S")


class WarmFold(NamedTuple, Generic[S]):
    """The fold of a partition that has been followed to the end of its journal."""

    fold: Fold[S]
    saved: int  # cause of the last entry in the snapshot from which it began


@dataclass(eq=False)
class _Following(Generic[S]):
    """One partition: `looked` once its end was reached, or could not be."""

    warm: WarmFold[S] | None = None
    looked: bool = False
    task: KeptTask[None] = field(init=False)


class Standbys(Generic[S]):
    """Partitions of one stream that this process follows without deciding anything.

    A fold here only saves time, as a snapshot does. A partition that cannot be followed has none:
    its owner finds the same fault, and says so.
    """

    def __init__(self, runtime: JournalPorts, aggregate: Aggregate[S], limits: HostLimits) -> None:
        self._runtime, self._aggregate, self._limits = runtime, aggregate, limits
        self._followed: dict[int, _Following[S]] = {}

    def follow(self, partitions: Iterable[int]) -> None:
        """Begin to follow, from the newest snapshot."""
        for partition in partitions:
            following = self._followed[partition] = _Following[S]()
            work = partial(self._follow, partition, following)
            following.task = KeptTask(work, f"{self._aggregate.stream.name} standby {partition}")

    async def caught_up(self) -> None:
        """Return when every end was reached, or could not be."""
        while not all(following.looked for following in self._followed.values()):
            beat("working")
            await self._runtime.clock.sleep(READY_POLL_MS)

    def take(self, partition: int) -> WarmFold[S] | None:
        """Stop following a partition; return its fold if the end was reached."""
        following = self._followed.pop(partition, None)
        if following is None:
            return None
        following.task.release().cancel()
        return following.warm

    async def stop(self) -> None:
        """Stop following all partitions."""
        await stop_tasks([following.task.release() for following in self._followed.values()])
        self._followed.clear()

    async def _follow(self, partition: int, following: _Following[S]) -> None:
        try:
            while True:
                try:
                    await self._read(partition, following)
                except (Unavailable, OutOfRange):
                    following.warm, following.looked = None, True
                beat("waiting")
                await self._runtime.clock.sleep(self._limits.retry_ms)
        except PartitionStopped:
            following.warm = None
        finally:
            following.looked = True

    async def _read(self, partition: int, following: _Following[S]) -> None:
        """Follow from the newest snapshot until something is in doubt."""
        fold = await Snapshots(self._runtime, self._aggregate, partition).load()
        saved = fold.position.acceptance.cause
        stream = self._aggregate.stream
        reader = JournalReader(self._runtime.log, stream, {partition: fold.position})
        try:
            await reader.open()
            while True:
                if reader.caught_up(partition):
                    following.warm, following.looked = WarmFold(fold, saved), True
                fold = await fold_more(self._aggregate, reader, partition, fold, self._limits)
        finally:
            await reader.close()


async def fold_more(
    aggregate: Aggregate[S],
    reader: JournalReader,
    partition: int,
    fold: Fold[S],
    limits: HostLimits,
) -> Fold[S]:
    """The fold after the next batch. Raises PartitionStopped, Unavailable."""
    beat("working")
    batch = (await reader.read(limits.idle_wait_ms)).get(partition)
    if batch is None:
        return fold
    try:
        return advance_all(aggregate, fold, batch.accepted, batch.position)
    except Exception as error:
        why = f"the fold failed on a record at or after this offset: {error!r}"
        raise Unreadable(aggregate.stream.name, partition, fold.position.offset, why) from error
