"""The bundle without servers: what tests and the simulator give to a service."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from schemas.topics import PARTITIONS, STREAMS, TOPICS
from tunery.runtime.blobs.memory import MemoryBlobs
from tunery.runtime.bus.memory import MemoryLog
from tunery.runtime.bus.sender import Sender
from tunery.runtime.clock import Clock, SystemClock
from tunery.runtime.ports import Runtime
from tunery.runtime.seal.memory import MemoryKeyStore
from tunery.runtime.seal.sealer import Sealer
from tunery.runtime.settings import RuntimeSettings
from tunery.runtime.store.memory import MemoryStore

NOWHERE: Final = "memory"


@dataclass(frozen=True)
class World:
    """What services share. Each service gets a store of its own, as it has a schema of its own."""

    log: MemoryLog
    blobs: MemoryBlobs
    keys: MemoryKeyStore
    clock: Clock

    def runtime(self, name: str, store: MemoryStore | None = None) -> Runtime:
        """The bundle of one service. Give the same `store` again to start the service again."""
        return Runtime(
            name=name,
            settings=settings(),
            log=self.log,
            store=store or MemoryStore(self.clock),
            blobs=self.blobs,
            seal=Sealer(self.keys),
            sender=Sender(self.log, STREAMS),
            clock=self.clock,
        )


async def world(clock: Clock | None = None) -> World:
    """An empty world with every topic of the catalogue."""
    time = clock or SystemClock()
    log = MemoryLog(time)
    await log.create(TOPICS, PARTITIONS)
    return World(log, MemoryBlobs(), MemoryKeyStore(), time)


def settings() -> RuntimeSettings:
    """Settings that lead nowhere; the environment is not asked for those given here."""
    return RuntimeSettings(
        kafka_bootstrap=NOWHERE,
        postgres_dsn=NOWHERE,
        s3_endpoint=NOWHERE,
        s3_access_key=NOWHERE,
        s3_secret_key=NOWHERE,
        data_dir=Path(NOWHERE),
    )
