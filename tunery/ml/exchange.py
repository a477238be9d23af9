"""How the ranks of a training tell each other numbers: through memory that all of them share.

Each writes into its own part of it, and then waits until all have written. What says so is a word
over the connection to each other rank, which also ends when that rank does: how many bytes it has
written, and which of them the other one reads. The memory has two halves that are used in turn: who
is a round ahead has been waited for by all that read the last.

There is no network in it, nothing to listen at, and no path: the parent of the ranks gives them
the memory and the connections open (`joined` of `tunery.ranks`). Where a rank is on another
machine, the parent has the other end, and carries parts of the memory and words there and back.
"""

import mmap
import socket
import time
from collections.abc import Callable, Sequence
from typing import Final

import torch
from torch import Tensor

from tunery.ranks.joining import HALVES, WORD_BYTES, Descriptors, Word, decoded_word

# The others wait while the first answers prompts; the node agent ends processes that are silent.
WAIT_S_MAX: Final = 3_600.0
SAID_AFTER_S: Final = 30.0  # for which another rank was waited for


class RankLost(Exception):
    """Another rank does not answer: it has ended, or is being ended."""


class Exchange:
    """This rank's access to the others.

    number: 0 is the first
    on_wait: called with the number of a rank that has been waited for for long
    waited_s: how long others have been waited for so far
    """

    def __init__(self, number: int, count: int, descriptors: Descriptors) -> None:
        self.number, self.count = number, count
        self.on_wait: Callable[[int], None] = lambda _: None
        self.waited_s = 0.0
        memory, *connections = descriptors
        self._memory = torch.frombuffer(mmap.mmap(memory, 0), dtype=torch.uint8)
        self.part_bytes = len(self._memory) // (HALVES * count)
        self._round = 0
        others = (other for other in range(count) if other != number)
        self._others = {
            other: socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, fileno=connection)
            for other, connection in zip(others, connections, strict=True)
        }
        for connection in self._others.values():
            connection.settimeout(SAID_AFTER_S)

    def own_part(self) -> Tensor:
        """The bytes of memory that this rank writes in the next round."""
        return self._parts(self._round)[self.number]

    def meet(self, written: Sequence[int], reads: Sequence[slice] | None = None) -> list[Tensor]:
        """What each rank has written, in their order; it stays until the round after the next.

        written: bytes of each rank, `part_bytes` at most: all know them
        reads: which of this one's each rank reads; None: each reads all

        Raises RankLost.
        """
        parts = self._parts(self._round)
        self._round += 1
        whole = slice(0, written[self.number])
        began_s = time.monotonic()
        self._wait_for_all(written, reads or [whole] * self.count)
        self.waited_s += time.monotonic() - began_s
        return [part[:length] for part, length in zip(parts, written, strict=True)]

    def gather(self, tensor: Tensor) -> list[Tensor]:
        """What each rank has, in their order; it stays until the round after the next.

        tensor: of `part_bytes` at most, in all ranks of the same shape. Raises RankLost.
        """
        content = bytes_of(tensor.contiguous())
        self.own_part()[: len(content)].copy_(content)
        parts = self.meet([len(content)] * self.count)
        return [part.view(tensor.dtype).view(tensor.shape) for part in parts]

    def close(self) -> None:
        """End the connections: the others notice it."""
        for connection in self._others.values():
            connection.close()

    def _parts(self, at: int) -> list[Tensor]:
        """The memory of each rank in a round."""
        first = at % HALVES * self.count
        begins = [(first + number) * self.part_bytes for number in range(self.count)]
        return [self._memory[begin : begin + self.part_bytes] for begin in begins]

    def _wait_for_all(self, written: Sequence[int], reads: Sequence[slice]) -> None:
        """Wait until all ranks are here, and each has written as much. Raises RankLost."""
        try:
            for other, connection in self._others.items():
                read = reads[other]
                connection.sendall(Word(written[self.number], read.start, read.stop).encoded())
            for other, connection in self._others.items():
                word = decoded_word(self._hear(other, connection))
                if word is None:
                    raise RankLost(f"the connection to rank {other} has ended")
                if word.written != written[other]:
                    raise RankLost(f"rank {other} wrote {word.written} bytes, not {written[other]}")
        except OSError as error:
            raise RankLost(str(error)) from error

    def _hear(self, other: int, connection: socket.socket) -> bytes:
        """A word, or nothing where the connection has ended. Raises OSError."""
        try:
            return connection.recv(WORD_BYTES)
        except TimeoutError:
            self.on_wait(other)
        connection.settimeout(WAIT_S_MAX)
        try:
            return connection.recv(WORD_BYTES)
        finally:
            connection.settimeout(SAID_AFTER_S)


def bytes_of(tensor: Tensor) -> Tensor:
    """The same memory. Raises RuntimeError where it is not contiguous."""
    return tensor.detach().view(-1).view(torch.uint8)
