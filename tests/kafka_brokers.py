"""A Kafka of its own for a test, with settings that no stack has: of old versions, of operators."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from tunery.local import kafka, ports, secrets
from tunery.local.child import no_completion
from tunery.local.paths import DataDir
from tunery.local.secrets import Secrets
from tunery.local.stack import ignore
from tunery.local.supervisor import Supervisor
from tunery.runtime.bus.grants import OPERATOR
from tunery.runtime.bus.kafka import KafkaSettings

#: as versions did that asked nobody who they are
OPEN: Final = """
listener.security.protocol.map=CLIENTS:PLAINTEXT,CONTROLLER:PLAINTEXT
authorizer.class.name=
super.users=
"""


@dataclass(frozen=True)
class Broker:
    """A running broker. port: of its listener; keys: its accounts' passwords follow from them."""

    port: int
    controller_port: int
    keys: Secrets

    @property
    def bootstrap(self) -> str:
        return f"{ports.HOST}:{self.port}"

    def kafka_as(self, principal: str = OPERATOR, **more: Any) -> KafkaSettings:
        """How a principal reaches it. more: other settings."""
        return KafkaSettings(self.bootstrap, login=kafka.login(principal, self.keys), **more)

    def anybody(self) -> KafkaSettings:
        """How somebody without a password reaches it."""
        return KafkaSettings(self.bootstrap)


@contextlib.asynccontextmanager
async def broker(
    folder: Path, more: str = "", own_ports: tuple[int, int] | None = None
) -> AsyncIterator[Broker]:
    """Start it with its data in `folder`. more: lines of settings; `OPEN` has no accounts.

    own_ports: of clients and the controller; free ones unless given.
    """
    folders = DataDir(folder)
    folders.create()
    keys = secrets.load_or_create(folders.secrets)
    port = ports.find_free(set())
    running = Broker(*(own_ports or (port, ports.find_free({port}))), keys)
    child = kafka.child(folder / "kafka", running.port, running.controller_port, keys, more)
    if more == OPEN:
        child = replace(child, settle=no_completion)
    supervisor = Supervisor(folders, ignore)
    try:
        await supervisor.start([child])
        yield running
    finally:
        await supervisor.drain([["kafka"]])
