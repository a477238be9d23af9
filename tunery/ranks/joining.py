"""How ranks are joined: by what their parent gives them, open already."""

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import combinations
from typing import Final, Protocol, TypeAlias

RANK_MODULE: Final = "tunery.ml.rank_processes"  # arguments: spec, number, descriptors
VISIBLE: Final = "CUDA_VISIBLE_DEVICES"  # numbers or names of devices, separated by commas
PART_BYTES: Final = 1 << 23  # that each rank tells the others at once
HALVES: Final = 2  # of the shared memory: one is read while the other is written
NUMBER_BYTES: Final = 4
WORD_BYTES: Final = 3 * NUMBER_BYTES  # of what a rank tells each other one in a round
Descriptors: TypeAlias = tuple[int, ...]


@dataclass(frozen=True)
class Word:
    """What a rank tells another one in a round.

    written: bytes of its part
    begin, end: of those that the other one reads: where it is elsewhere, no others are carried
    """

    written: int
    begin: int
    end: int

    def encoded(self) -> bytes:
        numbers = self.written, self.begin, self.end
        return b"".join(number.to_bytes(NUMBER_BYTES, "big") for number in numbers)


def decoded_word(content: bytes) -> Word | None:
    """None: it is cut off, since who tells it has ended."""
    if len(content) != WORD_BYTES:
        return None
    numbers = range(0, WORD_BYTES, NUMBER_BYTES)
    return Word(*(int.from_bytes(content[at : at + NUMBER_BYTES], "big") for at in numbers))


class Keeper(Protocol):
    """Keeps what stands here for the ranks of other machines."""

    @property
    def count(self) -> int:
        """How many ranks there are, wherever they are."""

    @property
    def here(self) -> range:
        """The ranks of this machine."""

    def keep(self, here: int, away: int, end: socket.socket) -> None:
        """Take the connection of a rank here on which it meets one of another machine."""

    def keep_memory(self, memory: int, part_bytes: int) -> None:
        """Take a descriptor of the memory, which has to be duplicated."""


@contextmanager
def joined(
    count: int, part_bytes: int = PART_BYTES, keeper: Keeper | None = None
) -> Iterator[tuple[Descriptors, ...]]:
    """For each rank the shared memory, and its connections to the others in their order.

    keeper: has the other ends where ranks are elsewhere; None: all ranks are here

    The others are closed at the end of the block: then the ranks alone have them. Raises OSError.
    """
    here = range(count) if keeper is None else keeper.here
    with ExitStack() as opened:
        memory = os.memfd_create("ranks")
        opened.callback(os.close, memory)
        os.ftruncate(memory, HALVES * count * part_bytes)
        ends: dict[tuple[int, int], int] = {}
        for first, second in combinations(range(count), 2):
            if first not in here and second not in here:
                continue
            pairs = (first, second), (second, first)
            for (number, other), end in zip(pairs, socket.socketpair(), strict=True):
                if keeper is not None and number not in here:
                    keeper.keep(other, number, end)
                else:
                    ends[number, other] = opened.enter_context(end).fileno()
        if keeper is not None:
            keeper.keep_memory(memory, part_bytes)
        yield tuple(
            (memory, *(ends[number, other] for other in range(count) if other != number))
            for number in here
        )
