"""Carries what ranks of this machine tell those of other machines, and back.

A rank writes its part of the memory and tells each other rank how much that is, and what of it the
other one reads. Where that is elsewhere, the word ends here: what ranks elsewhere read is sent once
to wherever they are, written there into the same place, and the word goes on to every rank of that
machine. So each rank sees what it would see if all were here, and adds in the same order.

The memory is read and written by calls, and not mapped: a rank that shortens it harms itself alone.
"""

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, TypeAlias

from msgspec import Struct

from tunery.ranks.joining import HALVES, WORD_BYTES, Word, decoded_word


class RankPart(Struct, frozen=True, tag="part", array_like=True):
    """What ranks of other machines read of what a rank has written in a round.

    rank, round: counted from 0
    begin: where in its part the content begins
    written: bytes of its part
    """

    rank: int
    round: int
    content: bytes
    begin: int = 0
    written: int = 0


class RankGone(Struct, frozen=True, tag="gone", array_like=True):
    """A rank tells the others nothing more."""

    rank: int


Carried: TypeAlias = RankPart | RankGone
EARLY_OF_RANK: Final = 2  # a part before this machine's ranks were started, and its end


class CarriedWrong(Exception):
    """Another machine sent what no rank can have told."""


class Carrier:
    """Keeps, for the ranks of this machine, the ends of those that are elsewhere.

    count: of all ranks
    here: those of this machine
    send: to the machines of the others
    """

    def __init__(self, count: int, here: range, send: Callable[[Carried], Awaitable[None]]) -> None:
        self.count, self.here = count, here
        self._send = send
        self._away = [number for number in range(count) if number not in here]
        self._ends: dict[tuple[int, int], socket.socket] = {}
        self._memory: int | None = None
        self._part_bytes = 0
        self._rounds = dict.fromkeys(self._away, 0)  # that parts have come of
        self._gone: set[int] = set()
        self._early: list[Carried] = []
        self._has_begun = False
        self._listening: list[asyncio.Task[None]] = []

    def keep(self, here: int, away: int, end: socket.socket) -> None:
        """As `Keeper` has it."""
        end.setblocking(False)
        self._ends[here, away] = end

    def keep_memory(self, memory: int, part_bytes: int) -> None:
        """As `Keeper` has it."""
        self._memory, self._part_bytes = os.dup(memory), part_bytes

    async def begin(self) -> None:
        """The ranks of this machine are started: carry from here on. Raises CarriedWrong."""
        self._listening = [asyncio.create_task(self._listen(number)) for number in self.here]
        while self._early:
            await self._pass_on(self._early.pop(0))
        self._has_begun = True

    async def deliver(self, carried: Carried) -> None:
        """Pass on what a rank of another machine told. Raises CarriedWrong."""
        if carried.rank not in self._rounds:
            raise CarriedWrong(f"rank {carried.rank} is not of another machine")
        if self._has_begun:
            await self._pass_on(carried)
            return
        self._early.append(carried)
        if len(self._early) > EARLY_OF_RANK * len(self._away):
            raise CarriedWrong("ranks told more than they can before the others have begun")

    async def end_all(self) -> None:
        """No other machine is reached any more: the ranks here lose all others."""
        for number in self._away:
            if number not in self._gone:
                await self.deliver(RankGone(number))

    async def close(self) -> None:
        """Carry nothing more."""
        for task in self._listening:
            task.cancel()
        await asyncio.gather(*self._listening, return_exceptions=True)
        for end in self._ends.values():
            end.close()
        self._ends.clear()
        if self._memory is not None:
            os.close(self._memory)
            self._memory = None

    async def _pass_on(self, carried: Carried) -> None:
        number = carried.rank
        if isinstance(carried, RankGone):
            self._end(number)
            return
        end = carried.begin + len(carried.content)
        is_within = 0 <= carried.begin <= end <= carried.written <= self._part_bytes
        if carried.round != self._rounds[number] or not is_within:
            raise CarriedWrong(f"rank {number} told something in round {carried.round}")
        if self._memory is None:  # closed
            return
        self._rounds[number] += 1
        at = self._offset(number, carried.round) + carried.begin
        os.pwrite(self._memory, carried.content, at)
        word = Word(carried.written, carried.begin, end).encoded()
        for here in self.here:
            with suppress(OSError):  # it has ended: its process says so
                await asyncio.get_running_loop().sock_sendall(self._ends[here, number], word)

    async def _listen(self, number: int) -> None:
        """Send every part of a rank, until that ends."""
        at = 0
        with suppress(OSError):
            while (word := await self._hear(number)) is not None:
                assert self._memory is not None, "begun"  # noqa: S101  # set before it listens
                begins = self._offset(number, at) + word.begin
                content = os.pread(self._memory, word.end - word.begin, begins)
                await self._send(RankPart(number, at, content, word.begin, word.written))
                at += 1
        await self._send(RankGone(number))

    async def _hear(self, number: int) -> Word | None:
        """How much a rank has written, and what of it others read, from the first byte to the last.

        None: it has ended, or says what it cannot have written.
        """
        words: list[Word] = []
        for away in self._away:
            end = self._ends[number, away]
            content = await asyncio.get_running_loop().sock_recv(end, WORD_BYTES)
            if (word := decoded_word(content)) is None:
                return None
            words.append(word)
        written = {word.written for word in words}
        read = [word for word in words if word.begin < word.end] or [Word(0, 0, 0)]
        first, last = min(word.begin for word in read), max(word.end for word in read)
        is_within = len(written) == 1 and last <= max(written) <= self._part_bytes
        return Word(max(written), first, last) if is_within else None

    def _offset(self, number: int, at: int) -> int:
        """Where in the memory the part of a rank is in a round."""
        return (at % HALVES * self.count + number) * self._part_bytes

    def _end(self, number: int) -> None:
        """Let the ranks here see that one of another machine has ended."""
        if number in self._gone:
            return
        self._gone.add(number)
        for here in self.here:
            with suppress(OSError):
                self._ends[here, number].shutdown(socket.SHUT_WR)
