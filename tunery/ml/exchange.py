"""How the ranks of a training tell each other numbers: through memory that all of them share.

Each writes into its own part of it, and then waits until all have written. What says so is a word
over the connection to each other rank, which also ends when that rank does: how many bytes it has
written. The memory has two halves that are used in turn: who is a round ahead has been waited for
by all that read the last.

There is no network in it, nothing to listen at, and no path: the parent of the ranks gives them
the memory and the connections open (`joined` of `tunery.ranks`). Where a rank is on another
machine, the parent has the other end, and carries parts of the memory and words there and back.
"""

import mmap
import socket
from collections.abc import Callable
from typing import Final

import torch
from torch import Tensor

from tunery.ranks.joining import HALVES, WORD_BYTES, Descriptors, word_of

# The others wait while the first answers prompts; the node agent ends processes that are silent.
WAIT_S_MAX: Final = 3_600.0
SAID_AFTER_S: Final = 30.0  # for which another rank was waited for


class RankLost(Exception):
    """Another rank does not answer: it has ended, or is being ended."""


class Exchange:
    """This rank's access to the others.

    number: 0 is the first
    on_wait: called with the number of a rank that has been waited for for long
    """

    def __init__(self, number: int, count: int, descriptors: Descriptors) -> None:
        self.number, self.count = number, count
        self.on_wait: Callable[[int], None] = lambda _: None
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

    def gather(self, tensor: Tensor) -> list[Tensor]:
        """What each rank has, in their order; it stays until the round after the next.

        tensor: of `part_bytes` at most, in all ranks of the same shape. Raises RankLost.
        """
        content = tensor.contiguous().reshape(-1).view(torch.uint8)
        half = self._round % HALVES * self.count
        self._round += 1
        begins = [(half + number) * self.part_bytes for number in range(self.count)]
        parts = [self._memory[begin : begin + len(content)] for begin in begins]
        parts[self.number].copy_(content)
        self._meet(word_of(len(content)))
        return [part.view(tensor.dtype).view(tensor.shape) for part in parts]

    def close(self) -> None:
        """End the connections: the others notice it."""
        for connection in self._others.values():
            connection.close()

    def _meet(self, word: bytes) -> None:
        """Wait until all ranks are here, and have written as much. Raises RankLost."""
        try:
            for connection in self._others.values():
                connection.sendall(word)
            for other, connection in self._others.items():
                if (word_of_other := self._hear(other, connection)) != word:
                    wrote = (
                        f"rank {other} wrote {word_of_other.hex()} bytes, and this one {word.hex()}"
                    )
                    raise RankLost(
                        wrote if word_of_other else f"the connection to rank {other} has ended"
                    )
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
