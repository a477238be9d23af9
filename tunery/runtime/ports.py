"""What a service is given: a bundle of ports. The simulator builds one from memory adapters."""

from dataclasses import dataclass
from typing import Protocol

from tunery.runtime.blobs.abstract import Blobs
from tunery.runtime.bus.abstract import Log
from tunery.runtime.bus.sender import Sender
from tunery.runtime.clock import Clock
from tunery.runtime.seal.sealer import Sealer
from tunery.runtime.settings import RuntimeSettings
from tunery.runtime.store.abstract import Store


@dataclass(frozen=True)
class Runtime:
    """`name` is the service's; its tables live in the PostgreSQL schema of that name.

    `clock` is for effects, HTTP and hosts; never for money.
    """

    name: str
    settings: RuntimeSettings
    log: Log
    store: Store
    blobs: Blobs
    seal: Sealer
    sender: Sender
    clock: Clock


class HostStopped(Exception):
    """Raised by a host that must not run again in this process; the message says what to do."""


class Host(Protocol):
    """Something that runs as long as its process. `run` is called again after it raised."""

    @property
    def name(self) -> str: ...

    async def run(self) -> None:
        """Work until cancelled. What it raises is logged, and it is run again after a pause;

        `Divergence` and other `PartitionStopped` end it for good: somebody has to look.
        """

    async def ready(self) -> None:
        """Return when the host serves, in this run or an earlier one."""
