"""Ports of the event core's hosts, and their limits."""

from dataclasses import dataclass
from typing import Protocol

from schemas.units import Ms
from tunery.runtime.blobs.abstract import Blobs
from tunery.runtime.bus.abstract import Log
from tunery.runtime.bus.signing import SenderKeys
from tunery.runtime.clock import Clock
from tunery.runtime.levels import LogLevels


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
    @property
    def levels(self) -> LogLevels: ...


@dataclass(frozen=True)
class HostLimits:
    """Named limits of the hosts. The defaults are production's; tests shorten times."""

    standby: bool = True  # fold partitions of other processes, too, to take them over in no time
    window: int = 32  # decisions in flight
    commands_per_read: int = 256
    idle_wait_ms: Ms = 1_000
    ticks_max: int = 256  # ticks of one partition that are sent and not decided
    tick_again_ms: Ms = 100  # time from a tick to the next one of a key that is still due
    tick_every_ms: Ms = 1_000  # the same after a tick that did nothing
    tick_lost_ms: Ms = 10_000  # a tick that is not decided by then is sent again
    trim_every_ms: Ms = 60_000
    trim_every: int = 100_000  # commands after which a partition that is never idle is trimmed
    snapshot_every: int = 10_000  # entries from one snapshot to the next
    # a large snapshot waits for one entry per so many of its bytes
    snapshot_bytes_of_entry: int = 1_000
    # time between snapshots where there are at least `snapshot_least` new entries
    snapshot_every_ms: Ms = 600_000
    snapshot_least: int = 500
    back_off_ms_max: Ms = 10_000
    retry_ms: Ms = 500
    commit_every_ms: Ms = 500
