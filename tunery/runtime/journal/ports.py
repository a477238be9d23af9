"""Ports of the event core's hosts, and their limits."""

from dataclasses import dataclass
from typing import Protocol

from schemas.units import Ms
from tunery.runtime.blobs.abstract import Blobs
from tunery.runtime.bus.abstract import Log
from tunery.runtime.bus.signing import SenderKeys
from tunery.runtime.clock import Clock


class JournalPorts(Protocol):
    """The part of `Runtime` that the event core uses."""

    @property
    def name(self) -> str: ...
    @property
    def keys(self) -> SenderKeys: ...
    @property
    def log(self) -> Log: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def blobs(self) -> Blobs: ...


@dataclass(frozen=True)
class HostLimits:
    """Named limits of the hosts. The defaults are production's; tests shorten times."""

    window: int = 32  # decisions in flight
    commands_per_read: int = 256
    idle_wait_ms: Ms = 1_000
    tick_every_ms: Ms = 1_000
    trim_every_ms: Ms = 60_000
    trim_every: int = 100_000  # commands, when the partition is never idle
    snapshot_every: int = 10_000  # entries, and more when the state is large:
    snapshot_bytes_of_entry: int = 1_000  # as many as it has kB, so that keeping it stays cheap
    snapshot_every_ms: Ms = 600_000  # when there are at least `snapshot_least` new entries
    snapshot_least: int = 500
    back_off_ms_max: Ms = 10_000
    retry_ms: Ms = 500
    commit_every_ms: Ms = 500
