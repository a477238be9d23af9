"""Threads that work in turn, each as if the process were its own.

One of them works at a time. Libraries draw random numbers from generators of the process, and
accelerate keeps where a training loop is in attributes of classes: both change hands with the turn.
"""

import random
import threading
from collections import deque
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final

import numpy as np
import torch
from accelerate.state import AcceleratorState, GradientState, PartialState
from torch import Tensor

# Each instance of these has the attributes of its class.
SINGLETONS: Final[tuple[Any, ...]] = (PartialState, AcceleratorState, GradientState)


@dataclass(frozen=True)
class ProcessState:
    """What belongs to the process and not to a thread, as it was when it was taken.

    devices: states of the generators of accelerators; empty: none had been used
    singletons: attributes of `SINGLETONS`, in their order
    """

    python: Any
    numpy: Any
    processor: Tensor
    devices: list[Tensor]
    singletons: list[dict[str, Any]]

    @classmethod
    def take(cls) -> "ProcessState":
        """What it is now."""
        has_devices = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]  # torch
        return cls(
            python=random.getstate(),
            numpy=np.random.get_state(),
            processor=torch.get_rng_state(),
            devices=torch.cuda.get_rng_state_all() if has_devices else [],
            singletons=[dict(singleton._shared_state) for singleton in SINGLETONS],
        )

    def restore(self) -> None:
        """Make the process what it was."""
        random.setstate(self.python)
        np.random.set_state(self.numpy)
        torch.set_rng_state(self.processor)
        if self.devices:
            torch.cuda.set_rng_state_all(self.devices)
        for singleton, attributes in zip(SINGLETONS, self.singletons, strict=True):
            singleton._shared_state.clear()
            singleton._shared_state.update(attributes)


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
