"""What a child process of the stack is: how it starts, how one sees it is ready, how it stops."""

import signal
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tunery.local.identity import Identity


@dataclass(frozen=True)
class LogLine:
    """Ready when a line with one of these texts is in the log of this start."""

    texts: tuple[bytes, ...]


@dataclass(frozen=True)
class TcpPort:
    """Ready when 127.0.0.1:port accepts a connection."""

    port: int


def no_preparation() -> None:
    """For children that need nothing before they start."""


async def nothing_to_settle() -> None:
    """For children that are complete once they are ready."""


@dataclass(frozen=True)
class Child:
    """`prepare` runs in a thread before every start and repairs what a dead machine left.

    `settle` runs after each readiness (make the database, the bucket); the child counts as ready
    only then.
    """

    name: str
    argv: tuple[str, ...]
    cwd: Path
    ready: LogLine | TcpPort
    ready_ms_max: int
    stop_ms_max: int
    env: Mapping[str, str] = field(default_factory=dict)
    identity: Identity | None = None
    stop_signal: signal.Signals = signal.SIGTERM
    address: str = ""
    prepare: Callable[[], None] = no_preparation
    settle: Callable[[], Awaitable[None]] = nothing_to_settle


READY_EVENT = LogLine((b'"event":"process.ready"', b'"event": "process.ready"'))


def service(name: str, argv: tuple[str, ...], cwd: Path, env: Mapping[str, str]) -> Child:
    """A service process: it says `"event":"process.ready"` in a line of JSON when it is."""
    return Child(
        name=name,
        argv=argv,
        cwd=cwd,
        ready=READY_EVENT,
        ready_ms_max=60_000,
        stop_ms_max=15_000,
        env=env,
    )
