"""The ports that a service is given: real ones by `connections`, in memory by `memory_servers`."""

from dataclasses import dataclass, field

from tunery.runtime.blobs.abstract import Blobs
from tunery.runtime.bus.abstract import Log
from tunery.runtime.bus.sender import Sender
from tunery.runtime.bus.signing import UNSIGNED, SenderKeys
from tunery.runtime.clock import Clock
from tunery.runtime.health import Health
from tunery.runtime.seal.sealer import Sealer
from tunery.runtime.settings import RuntimeSettings
from tunery.runtime.store.abstract import Store
from tunery.runtime.telemetry.figures import StateGauges


@dataclass(frozen=True)
class Runtime:
    """`name` is the service's; its tables live in the PostgreSQL schema of that name.

    `clock` is for effects, HTTP and hosts; never for money. `health`: of this process's hosts.
    `figures`: what its states say at each scrape. `keys`: which prove who sends a command.
    """

    name: str
    settings: RuntimeSettings
    log: Log
    store: Store
    blobs: Blobs
    seal: Sealer
    sender: Sender
    clock: Clock
    health: Health = field(default_factory=Health)
    figures: StateGauges = field(default_factory=StateGauges)
    keys: SenderKeys = UNSIGNED
