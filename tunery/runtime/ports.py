"""The ports that hosts are given."""

from dataclasses import dataclass, field

from tunery.runtime.blobs.abstract import Blobs
from tunery.runtime.bus.abstract import Log
from tunery.runtime.bus.sender import Sender
from tunery.runtime.bus.signing import UNSIGNED, SenderKeys
from tunery.runtime.clock import Clock
from tunery.runtime.health import Health
from tunery.runtime.levels import LogLevels
from tunery.runtime.store.abstract import Store
from tunery.runtime.telemetry.figures import StateGauges


@dataclass(frozen=True)
class Ports:
    """Dependencies of a service's hosts."""

    name: str  # name of the service, and of its schema in PostgreSQL
    log: Log
    store: Store
    blobs: Blobs
    sender: Sender
    clock: Clock  # for effects, HTTP and hosts; never for money
    health: Health = field(default_factory=Health)  # health of this process's hosts
    figures: StateGauges = field(default_factory=StateGauges)  # values of its states at each scrape
    keys: SenderKeys = UNSIGNED  # keys that prove who sends a command
    levels: LogLevels = field(default_factory=LogLevels)  # to which level operators raised the log
