"""Ranks of one training on two machines, whose carriers are connected here without a network."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from threading import Thread
from typing import TypeAlias

from tunery.ranks.carrying import Carried, Carrier
from tunery.ranks.joining import PART_BYTES, Descriptors, joined

Join: TypeAlias = Callable[[int], AbstractContextManager[tuple[Descriptors, ...]]]


class Pair:
    """Carriers of a machine with the first ranks and one with the others.

    sent: by each of them to the other one, in order
    """

    def __init__(self, count: int, first: int) -> None:
        halves = range(first), range(first, count)
        self.sent: tuple[list[Carried], list[Carried]] = ([], [])
        self.carriers = [
            Carrier(count, here, partial(self._send, at)) for at, here in enumerate(halves)
        ]

    @contextmanager
    def joined(self, count: int, part_bytes: int) -> Iterator[tuple[Descriptors, ...]]:
        """What all ranks are given, in their order."""
        here, there = self.carriers
        with joined(count, part_bytes, here) as first, joined(count, part_bytes, there) as second:
            yield (*first, *second)

    async def begin(self) -> None:
        await asyncio.gather(*(carrier.begin() for carrier in self.carriers))

    async def close(self) -> None:
        await asyncio.gather(*(carrier.close() for carrier in self.carriers))

    async def _send(self, at: int, carried: Carried) -> None:
        self.sent[at].append(carried)
        await self.carriers[1 - at].deliver(carried)


@contextmanager
def two_machines(count: int) -> Iterator[Join]:
    """Joins ranks as `joined` does, half of which are on another machine each."""
    pair, loop = Pair(count, count // 2), asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever)
    thread.start()

    @contextmanager
    def join(count: int) -> Iterator[tuple[Descriptors, ...]]:
        with pair.joined(count, PART_BYTES) as every:
            asyncio.run_coroutine_threadsafe(pair.begin(), loop).result()
            yield every

    try:
        yield join
    finally:
        asyncio.run_coroutine_threadsafe(pair.close(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
