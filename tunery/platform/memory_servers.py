"""In-memory ports of a service, for tests and the simulator."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from schemas.streams import PARTITIONS, Stream
from schemas.topics import STREAMS, TOPICS
from tunery.platform.ports import Runtime
from tunery.platform.seal.memory import MemoryKeyStore
from tunery.platform.seal.sealer import Sealer
from tunery.platform.settings import RuntimeSettings
from tunery.runtime.blobs.memory import MemoryBlobs
from tunery.runtime.bus.memory import MemoryLog
from tunery.runtime.bus.sender import Sender
from tunery.runtime.clock import Clock, SystemClock
from tunery.runtime.store.memory import MemoryStore

NO_SERVER: Final = "memory"


@dataclass(frozen=True)
class MemoryServers:
    """Log, blobs and keys in memory, shared by services; each service gets its own store."""

    log: MemoryLog
    blobs: MemoryBlobs
    keys: MemoryKeyStore
    clock: Clock
    streams: Mapping[str, Stream] = field(default_factory=lambda: STREAMS)

    def runtime(self, name: str, store: MemoryStore | None = None) -> Runtime:
        """The ports of one service. Pass the same `store` again to restart the service."""
        return Runtime(
            name=name,
            settings=settings(),
            log=self.log,
            store=store or MemoryStore(self.clock),
            blobs=self.blobs,
            seal=Sealer(self.keys),
            sender=Sender(self.log, self.streams),
            clock=self.clock,
        )


async def memory_servers(
    clock: Clock | None = None, streams: Sequence[Stream] = ()
) -> MemoryServers:
    """Empty servers; the log has every topic of the catalogue, and those of more streams."""
    time = clock or SystemClock()
    log = MemoryLog(time)
    more = [topic for stream in streams for topic in (stream.commands, stream.journal)]
    await log.create((*TOPICS, *more), PARTITIONS)
    known = {**STREAMS, **{stream.name: stream for stream in streams}}
    return MemoryServers(log, MemoryBlobs(), MemoryKeyStore(), time, known)


def settings() -> RuntimeSettings:
    """Settings without a server behind them; the environment does not override those set here."""
    return RuntimeSettings(
        kafka_bootstrap=NO_SERVER,
        postgres_dsn=NO_SERVER,
        s3_endpoint=NO_SERVER,
        s3_access_key=NO_SERVER,
        s3_secret_key=f"no-{NO_SERVER}",
        data_dir=Path(NO_SERVER),
    )
