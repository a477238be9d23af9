"""Threads that work in turn, each as if the process were its own.

One of them works at a time. Libraries draw random numbers from generators of the process, which
change hands with the turn.
"""

import random
import threading
from collections import deque
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class ProcessState:
    """Snapshot of state that is global to the process: its generators of random numbers."""

    python: Any
    numpy: Any
    processor: Tensor
    devices: list[Tensor]  # states of the generators of accelerators; empty: none had been used

    @classmethod
    def take(cls) -> "ProcessState":
        """Return the current state."""
        has_devices = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]  # torch
        return cls(
            python=random.getstate(),
            numpy=np.random.get_state(),
            processor=torch.get_rng_state(),
            devices=torch.cuda.get_rng_state_all() if has_devices else [],
        )

    def restore(self) -> None:
        """Make the process what it was."""
        random.setstate(self.python)
        np.random.set_state(self.numpy)
        torch.set_rng_state(self.processor)
        if self.devices:
            torch.cuda.set_rng_state_all(self.devices)


class Turn:
    """The place of one thread in the line. Its block waits for its first turn, and ends its last.

    A thread begins with the process as it was when it joined.
    """

    def __init__(self, queue: "TurnQueue") -> None:
        self._queue = queue
        self._state = ProcessState.take()
        self.may_work = threading.Semaphore(0)

    def __enter__(self) -> "Turn":
        self.may_work.acquire()
        self._state.restore()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._queue.go_on()

    def pass_on(self) -> None:
        """Let every thread that waits have a turn first. Without one this returns at once."""
        if not self._queue.has_waiting():
            return
        self._state = ProcessState.take()
        self._queue.append(self)
        self._queue.go_on()
        self.may_work.acquire()
        self._state.restore()


class TurnQueue:
    """The line of threads, in the order in which they joined it."""

    def __init__(self) -> None:
        self._waiting: deque[Turn] = deque()

    def join(self) -> Turn:
        """A place at the end. It is made before its thread is started, and before `go_on`."""
        turn = Turn(self)
        self.append(turn)
        return turn

    def append(self, turn: Turn) -> None:
        """Put a place at the end."""
        self._waiting.append(turn)

    def has_waiting(self) -> bool:
        return bool(self._waiting)

    def go_on(self) -> None:
        """Let the first that waits work. For the thread that works, when it stops to."""
        if self._waiting:
            self._waiting.popleft().may_work.release()
