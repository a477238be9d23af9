"""Log lines of a service while a test runs, as the JSON objects that it would print."""

import io
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tunery.runtime.telemetry.logs import JsonFormatter


class Lines:
    """The lines so far."""

    def __init__(self, out: io.StringIO) -> None:
        self._out = out

    def all(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._out.getvalue().splitlines()]

    def of(self, event: str) -> list[dict[str, Any]]:
        """The lines of an event."""
        return [line for line in self.all() if line["event"] == event]

    def text(self) -> str:
        return self._out.getvalue()


@contextmanager
def logged(service: str = "test") -> Iterator[Lines]:
    """Format all lines of level INFO as a service does."""
    out, root = io.StringIO(), logging.getLogger()
    handler = logging.StreamHandler(out)
    handler.setFormatter(JsonFormatter(service))
    before = root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    try:
        yield Lines(out)
    finally:
        root.removeHandler(handler)
        root.setLevel(before)
