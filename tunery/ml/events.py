"""What a training or scoring process says: one JSON object per line on its standard output.

Every line has `type` and `elapsed_ms` since the process began. Exit codes say how it ended.
"""

import json
import os
import sys
import time
from typing import IO, Any

from tunery.work.spec import Cause, Refused

EXIT_FINISHED = 0
EXIT_USER = 64
EXIT_BAD_DATA = 65
EXIT_DIVERGENCE = 66
EXIT_PLATFORM = 70
EXIT_OOM = 71
EXIT_ORPHANED = 74  # nobody reads the events any more
EXIT_PREEMPTED = 75  # told to stop, checkpointed: run it again

EXIT_OF_CAUSE: dict[Cause, int] = {
    "user": EXIT_USER,
    "bad_data": EXIT_BAD_DATA,
    "divergence": EXIT_DIVERGENCE,
    "platform": EXIT_PLATFORM,
    "oom": EXIT_OOM,
}
OOM_WORDS = ("out of memory", "can't allocate memory", "not enough memory", "cannot allocate")


class Events:
    """The event stream of this process; `started_s` is on the monotonic clock."""

    def __init__(self, stream: IO[str], started_s: float) -> None:
        self.stream = stream
        self.started_s = started_s

    @classmethod
    def on_stdout(cls) -> "Events":
        """Take standard output for events: whatever libraries print goes to standard error."""
        stream = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        return cls(stream, time.monotonic())

    def elapsed_ms(self) -> int:
        return int(1000 * (time.monotonic() - self.started_s))

    def emit(self, kind: str, **fields: Any) -> None:
        """Raises `BrokenPipeError` when the reader is gone."""
        line = {"type": kind, "elapsed_ms": self.elapsed_ms(), **fields}
        self.stream.write(f"{json.dumps(line, default=_listed)}\n")
        self.stream.flush()

    def failed(self, error: Exception) -> int:
        """Say why it failed; the exit code for that cause."""
        refused = classify(error)
        self.emit("failed", cause=refused.cause, message=refused.message, advice=refused.advice)
        return EXIT_OF_CAUSE[refused.cause]


def classify(error: Exception) -> Refused:
    """The cause of a failure, with what to do about it."""
    if isinstance(error, Refused):
        return error
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, MemoryError) or any(word in text.lower() for word in OOM_WORDS):
        advice = "Lower batch_size or max_length, or use a node with more memory."
        return Refused("oom", text, advice)
    return Refused("platform", text, "Run it again; if it fails again, report the log.")


def _listed(value: object) -> object:
    """JSON for msgspec structs."""
    import msgspec  # only reached for structs

    return msgspec.to_builtins(value)
