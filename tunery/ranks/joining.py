"""How ranks are joined: by what their parent gives them, open already."""

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import combinations
from typing import Final, TypeAlias

RANK_MODULE: Final = "tunery.ml.rank_processes"  # arguments: spec, number, descriptors
VISIBLE: Final = "CUDA_VISIBLE_DEVICES"  # numbers or names of devices, separated by commas
PART_BYTES: Final = 1 << 23  # that each rank tells the others at once
HALVES: Final = 2  # of the shared memory: one is read while the other is written
Descriptors: TypeAlias = tuple[int, ...]


@contextmanager
def joined(count: int, part_bytes: int = PART_BYTES) -> Iterator[tuple[Descriptors, ...]]:
    """For each rank the shared memory, and its connections to the others in their order.

    They are closed at the end of the block: then the ranks alone have them. Raises OSError.
    """
    with ExitStack() as opened:
        memory = os.memfd_create("ranks")
        opened.callback(os.close, memory)
        os.ftruncate(memory, HALVES * count * part_bytes)
        ends: dict[tuple[int, int], int] = {}
        for first, second in combinations(range(count), 2):
            for key, end in zip(
                ((first, second), (second, first)), socket.socketpair(), strict=True
            ):
                ends[key] = opened.enter_context(end).fileno()
        yield tuple(
            (memory, *(ends[number, other] for other in range(count) if other != number))
            for number in range(count)
        )
