"""A Kafka of its own for a test, with settings that no stack has: of old versions, of operators."""

import contextlib
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from tunery.local import kafka, ports, secrets
from tunery.local.child import Child, LogText, no_completion
from tunery.local.paths import DataDir
from tunery.local.secrets import Secrets
from tunery.local.stack import ignore
from tunery.local.supervisor import Supervisor
from tunery.platform.bus.grants import OPERATOR
from tunery.platform.bus.kafka import KafkaSettings

#: as in versions without authentication
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
        return KafkaSettings(self.bootstrap, **kafka.logins(principal, self.keys), **more)

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


#: addresses and a folder; all else is Kafka's own default
STOCK: Final = """\
process.roles=broker,controller
node.id={node}
controller.quorum.voters={voters}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
controller.listener.names=CONTROLLER
log.dirs={logs}
"""


@dataclass(frozen=True)
class StockBrokers:
    """A cluster as the Apache Foundation ships it. `supervisor` kills and restarts `kafka-N`."""

    supervisor: Supervisor
    ports: tuple[int, ...]

    @property
    def names(self) -> list[str]:
        return [f"kafka-{node}" for node in range(1, len(self.ports) + 1)]

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{ports.HOST}:{port}" for port in self.ports)


@contextlib.asynccontextmanager
async def stock_brokers(
    folder: Path, count: int = 3, more: str = ""
) -> AsyncIterator[StockBrokers]:
    """Start brokers with Kafka's own settings. more: lines that an operator wrote besides."""
    folders = DataDir(folder)
    folders.create()
    chosen: list[int] = []
    for _port in range(2 * count):
        chosen.append(ports.find_free(set(chosen)))
    controllers = chosen[count:]
    voters = ",".join(f"{node}@{ports.HOST}:{at}" for node, at in enumerate(controllers, 1))
    cluster, path = kafka.cluster_id(uuid.uuid4()), kafka.class_path()

    def child(node: int) -> Child:
        home = folder / f"kafka-{node}"
        home.mkdir()
        settings = home / "server.properties"
        port, controller = chosen[node - 1], controllers[node - 1]
        written = STOCK.format(
            node=node, voters=voters, port=port, controller=controller, logs=home / "log"
        )
        settings.write_text(written + more, encoding="utf-8")
        kafka.format_once(home, settings, path, cluster)
        return Child(
            name=f"kafka-{node}",
            argv=(
                *(kafka.java(), *kafka.cache_flags(), *kafka.JAVA_FLAGS),
                *("-cp", path, "kafka.Kafka", str(settings)),
            ),
            cwd=home,
            ready=LogText((b"Kafka Server started",)),
            ready_ms_max=kafka.READY_MS_MAX,
            stop_ms_max=kafka.STOP_MS_MAX,
            address=f"{ports.HOST}:{port}",
        )

    supervisor = Supervisor(folders, ignore)
    brokers = StockBrokers(supervisor, tuple(chosen[:count]))
    try:
        await supervisor.start([child(node) for node in range(1, count + 1)])
        yield brokers
    finally:
        await supervisor.drain([brokers.names])
