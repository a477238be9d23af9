"""A child process of the stack: how it starts, how it becomes ready, how it stops."""

import signal
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tunery.local.identity import Identity


@dataclass(frozen=True)
class LogText:
    """Ready when one of these texts is in the log of this start."""

    texts: tuple[bytes, ...]


@dataclass(frozen=True)
class TcpPort:
    """Ready when 127.0.0.1:port accepts a connection."""

    port: int


def no_preparation() -> None:
    """For children that need nothing before they start."""


async def no_completion() -> None:
    """For children that are complete once they are ready."""


@dataclass(frozen=True)
class Child:
    """How to run one child process."""

    name: str
    argv: tuple[str, ...]
    cwd: Path
    ready: LogText | TcpPort  # what shows that it accepts requests, within ready_ms_max
    ready_ms_max: int
    stop_ms_max: int  # time from stop_signal to SIGKILL
    env: Mapping[str, str] = field(default_factory=dict)  # added to our environment
    identity: Identity | None = None  # the user it runs as; None for ours
    stop_signal: signal.Signals = signal.SIGTERM
    address: str = ""  # shown to people
    # on which it listens, by what people call them
    ports: Mapping[str, int] = field(default_factory=dict)
    # runs in a thread before every start, and repairs what a power cut left
    prepare: Callable[[], None] = no_preparation
    # runs after each start, to create a database or bucket; the child is ready after it
    settle: Callable[[], Awaitable[None]] = no_completion
    # what `argv` runs, where it may be forked from a process that has loaded it (`forks`)
    module: str = ""
    niceness: int = 0  # nice value of a forked child; the `argv` of others sets theirs


READY_EVENT = LogText((b'"event":"process.ready"', b'"event": "process.ready"'))


def service(
    name: str,
    argv: tuple[str, ...],
    cwd: Path,
    env: Mapping[str, str],
    ports: Mapping[str, int] | None = None,
) -> Child:
    """A service process. It is ready when it logs the event `process.ready` as a line of JSON."""
    return Child(
        name=name,
        argv=argv,
        cwd=cwd,
        ready=READY_EVENT,
        ready_ms_max=120_000,
        stop_ms_max=15_000,
        env=env,
        ports=ports or {},
    )
