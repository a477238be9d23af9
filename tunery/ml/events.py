"""Writes the events of a training or scoring process to its standard output."""

import os
import sys
import threading
import time
from typing import IO, Final

from tunery.work.codec import encode_event
from tunery.work.events import AnyWorkEvent, Failed
from tunery.work.exits import EXIT_OF_CAUSE, ExitCode, WorkError, is_machine_fault

OOM_WORDS: Final = (
    "out of memory",
    "can't allocate memory",
    "not enough memory",
    "cannot allocate",
)


class EventWriter:
    """The event stream of this process; `started_s` is on the monotonic clock.

    Checkpoints are written and reported while the training runs: any thread may emit.
    """

    def __init__(self, stream: IO[bytes], started_s: float) -> None:
        self.stream = stream
        self.started_s = started_s
        self._one_at_a_time = threading.Lock()

    @classmethod
    def on_stdout(cls) -> "EventWriter":
        """Use standard output for events alone; output of libraries goes to standard error."""
        stream = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        return cls(stream, time.monotonic())

    def elapsed_ms(self) -> int:
        """Time since the process began."""
        return int(1000 * (time.monotonic() - self.started_s))

    def emit(self, event: AnyWorkEvent) -> None:
        """Write one event with the time since the process began.

        Raises BrokenPipeError when the reader is gone.
        """
        self.forward(encode_event(event, self.elapsed_ms()) + b"\n")

    def forward(self, line: bytes) -> None:
        """Write a line that another process of this work has encoded. Raises as `emit` does."""
        with self._one_at_a_time:
            self.stream.write(line)
            self.stream.flush()

    def emit_failure(self, error: Exception) -> ExitCode:
        """Write a `Failed` event; returns the exit code for its cause."""
        failure = classify(error)
        failed = Failed(
            cause=failure.cause,
            message=failure.message,
            advice=failure.advice,
            rank=failure.rank,
        )
        self.emit(failed)
        return EXIT_OF_CAUSE[failure.cause]


def classify(error: Exception) -> WorkError:
    """The cause of a failure, with what to do about it."""
    if isinstance(error, WorkError):
        return error
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, MemoryError) or any(word in text.lower() for word in OOM_WORDS):
        advice = "Lower batch_size or max_length, or use a node with more memory."
        return WorkError("oom", text, advice)
    if is_machine_fault(error):
        return WorkError("bad_node", text, "Repair the node, or take it out of service.")
    return WorkError("platform", text, "Run it again; if it fails again, report the log.")
