"""The stack of one machine: four servers, then the services. For `tunery up`, tests, the demo.

async with stack(tmp_path, services=SERVICES) as running:
    running.api_url, running.admin_key, running.env
    running.kill("trainer", tree=True, restart=False)
"""

import asyncio
import contextlib
import fcntl
import os
import signal
import socket
import sys
import threading
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from schemas.streams import NODE_PREFIX
from tunery.local import child as children
from tunery.local import (
    kafka,
    own_servers,
    ports,
    postgres,
    prometheus,
    s3,
    s3_accounts,
    secrets,
    settings,
    valkey,
)
from tunery.local.child import Child
from tunery.local.errors import LocalError, PortTaken
from tunery.local.events import Event, Notice
from tunery.local.forks import FORKS
from tunery.local.kubernetes import laptop
from tunery.local.paths import DataDir
from tunery.local.supervisor import Supervisor
from tunery.platform.bus.broker_settings import EMBEDDED_SESSION_MS
from tunery.platform.bus.grants import OPERATOR
from tunery.platform.bus.kafka import KafkaSettings
from tunery.platform.bus.kafka_accounts import await_logins
from tunery.platform.seal.abstract import KeyStoreBroken
from tunery.platform.seal.directory import DirectoryKeyStore
from tunery.platform.seal.roots import Roots
from tunery.platform.seal.wrapping import prepare_root
from tunery.provenance.keys import create_key
from tunery.runtime.tasks import KeptTask

SERVERS: Final = ("kafka", "postgres", "valkey", "s3")
#: in the order they stop: those that take requests first, those that decide last
SERVICES: Final = (
    "gateway",
    "engine",
    "notifier",
    "trainer",
    "eval",
    "ingest",
    "registry",
    "billing",
    "watcher",
    "scheduler",
)
EXPORTER: Final = "exporter"  # runs where it is asked for: its files cost storage
AGENT: Final = "trainer"
OPTIONAL: Final = (laptop.AGENT, laptop.NAME)  # of `tunery up --kubernetes`
#: by the process that forks them. A node's agent starts anew: /proc shows the variables that a
#: program was started with, and so what an agent has.
LOADED: Final = tuple(f"services.{name}" for name in SERVICES if name != AGENT)
LOADED_MIN: Final = 4  # services of a stack, from which on it pays to load all of them
KNOWN: Final = (*SERVICES, EXPORTER)
PORT_CHOICES_MAX: Final = 4  # each time another program took one before it was used
METRICS_PORT: Final = "TUNERY_METRICS_PORT"
METRICS_PORT_FIRST: Final = 9400
ADDED_MAX: Final = 10  # ports that are kept free for metrics of processes that are added later
NODE_ID: Final = "TUNERY_NODE_ID"
AGENT_STOP_MS_MAX: Final = 60_000  # a training finishes its step and writes a checkpoint
TRIM_LOGS_MS: Final = 30_000
#: environment of an agent whose first lease finds the libraries of work loaded
WARM_NODE: Final = {"TUNERY_NODE_WARM": "true"}
#: requests wait for these two; the other services run with lower priority
PRIORITISED: Final = frozenset({"gateway", "scheduler"})
NICE: Final = 5


@dataclass(frozen=True)
class ServiceSpec:
    """A process to run next to the servers: `python -m {module}` unless `argv` says otherwise."""

    name: str
    module: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    argv: tuple[str, ...] = ()
    stop_ms_max: int = 15_000

    @property
    def node(self) -> str:
        """Id of the node that this process is the agent of; empty for other processes."""
        named = self.env.get(NODE_ID, "")
        if named or self.name != AGENT:
            return named
        return os.environ.get(NODE_ID) or f"node-{socket.gethostname()}"

    @property
    def principal(self) -> str:
        """Name by which the process authenticates to the embedded Kafka. Each node has its own."""
        return f"{NODE_PREFIX}{self.node}" if self.node else self.name

    @property
    def runs(self) -> str:
        """Name of the module that it runs; empty where `argv` says what it runs."""
        return "" if self.argv else self.module or f"services.{self.name}"

    def child(
        self, environment: Mapping[str, str], cwd: Path, own_ports: Mapping[str, int] | None = None
    ) -> Child:
        """own_ports: on which it listens, by what people call them."""
        argv = self.argv or (sys.executable, "-m", self.runs)
        niceness = 0 if self.name in PRIORITISED else NICE
        if niceness:
            argv = ("nice", "-n", str(niceness), *argv)
        node = {NODE_ID: self.node} if self.node else {}
        env = {**environment, **node, **self.env}
        built = children.service(self.name, argv, cwd, env, own_ports)
        return replace(built, stop_ms_max=self.stop_ms_max, module=self.runs, niceness=niceness)


def service_specs(names: Sequence[str]) -> tuple[ServiceSpec, ...]:
    """Specs of our services by name. Raises LocalError for an unknown name."""
    if unknown := [name for name in names if name not in KNOWN]:
        raise LocalError(
            f"there is no service {', '.join(unknown)}", f"choose from {', '.join(KNOWN)}"
        )
    return tuple(
        ServiceSpec(name, stop_ms_max=AGENT_STOP_MS_MAX if name == AGENT else 15_000)
        for name in names
    )


class Stack:
    """A running stack. Servers are named as in SERVERS, services as in their specs."""

    def __init__(
        self,
        where: settings.Settings,
        supervisor: Supervisor,
        first_metrics_port: int | None = None,
    ) -> None:
        """first_metrics_port: set where Prometheus runs next to the stack."""
        self.settings = where
        self.supervisor = supervisor
        self.first_metrics_port = first_metrics_port
        self.servers: list[str] = []
        self.services: list[str] = []

    @property
    def env(self) -> dict[str, str]:
        """Environment variables for clients of this stack, with the operator's credentials."""
        return self.settings.environment()

    @property
    def kafka_bootstrap(self) -> str:
        return self.settings.kafka_bootstrap

    @property
    def postgres_dsn(self) -> str:
        return self.settings.postgres_dsn

    @property
    def s3_endpoint(self) -> str:
        return self.settings.s3_endpoint

    @property
    def s3_access_key(self) -> str:
        return self.settings.s3_access_key

    @property
    def s3_secret_key(self) -> str:
        return self.settings.s3_secret_key

    @property
    def s3_bucket(self) -> str:
        return self.settings.s3_bucket

    @property
    def valkey_url(self) -> str:
        return self.settings.valkey_url

    @property
    def api_url(self) -> str:
        return self.settings.api_url

    @property
    def admin_key(self) -> str:
        return self.settings.admin_key

    @property
    def folders(self) -> DataDir:
        return self.settings.folders

    async def add(self, *specs: ServiceSpec) -> None:
        """Start more processes and wait until all of them are ready.

        Each gets the password of its own principal alone; that of a node is made now.
        """
        self.services += [spec.name for spec in specs if spec.name not in self.services]
        self.write_scrape_targets()
        agents = [spec for spec in specs if spec.node]
        begun = self.supervisor.begin(self._child(spec) for spec in specs if not spec.node)
        if agents:  # others start meanwhile
            await self.add_accounts([spec.principal for spec in agents])
        begun += self.supervisor.begin(map(self._child, agents))
        await self.supervisor.await_all(begun)

    def _child(self, spec: ServiceSpec) -> Child:
        env = {**self.settings.environment(spec.principal), **self.metrics_port(spec.name)}
        return spec.child(env, self.folders.root, self.ports_of(spec.name))

    async def add_accounts(self, nodes: Sequence[str]) -> None:
        """Give new nodes their accounts at the embedded servers. nodes: principals."""
        chosen, keys = ports.read(self.folders.ports), self.settings.keys
        if not self.settings.own_kafka:
            await kafka.add_accounts(chosen["kafka-controller"], keys, nodes)
            logins = [kafka.login(node, keys) for node in nodes]
            await await_logins(logins, f"{ports.HOST}:{chosen['kafka']}")
        if not self.settings.own_s3:
            folder, bucket = self.folders.server("s3"), self.s3_bucket
            await asyncio.to_thread(
                s3_accounts.provide_accounts, folder, chosen["s3"], keys, bucket, nodes
            )

    def metrics_port(self, name: str) -> dict[str, str]:
        """The port of a process's metrics: one after the other from $TUNERY_METRICS_PORT on.

        Prometheus next to the stack has ports chosen where the variable is not set.
        """
        if not (first := self.first_metrics_port or os.environ.get(METRICS_PORT)):
            return {}
        names = (*KNOWN, *without(self.services, KNOWN))
        return {METRICS_PORT: str(int(first) + names.index(name))}

    def ports_of(self, name: str) -> dict[str, int]:
        """On which a process listens, by what people call them."""
        api = {name: self.settings.gateway_port} if name == "gateway" else {}
        return api | {f"metrics of {name}": int(port) for port in self.metrics_port(name).values()}

    def write_scrape_targets(self) -> None:
        """Give Prometheus the addresses of the processes, where it runs with this stack."""
        if self.first_metrics_port is not None:
            addresses = {
                name: f"{ports.HOST}:{self.metrics_port(name)[METRICS_PORT]}"
                for name in self.services
            }
            prometheus.write_targets(self.folders.server(prometheus.NAME), addresses)

    def kafka_as(self, principal: str = OPERATOR, **more: Any) -> KafkaSettings:
        """How a principal reaches the embedded Kafka, and everybody one's own. more: settings."""
        if not self.settings.own_kafka:
            logins = kafka.logins(principal, self.settings.keys)
            more = {**logins, "session_timeout_ms": EMBEDDED_SESSION_MS} | more
        return KafkaSettings(self.kafka_bootstrap, **more)

    def kill(self, name: str, *, tree: bool = False, restart: bool = True) -> list[int]:
        """Send SIGKILL; with `tree` also to processes below. Without `restart` it stays dead."""
        return self.supervisor.kill(name, tree=tree, restart=restart)

    def pause(self, name: str) -> None:
        self.supervisor.pause(name)

    def resume(self, name: str) -> None:
        self.supervisor.resume(name)

    async def stop(self, name: str) -> None:
        await self.supervisor.stop(name)

    async def start(self, name: str) -> None:
        """Start a process that was stopped or killed without restart; returns when it is ready."""
        await self.supervisor.restart(name)

    async def await_ready(self, name: str) -> None:
        """Wait until a process that is restarted after a crash is ready."""
        await self.supervisor.await_ready(name)

    async def drain(self) -> None:
        """Services first, in the order of SERVICES, then the servers; Kafka last."""
        ordered = sorted(
            self.services, key=lambda name: SERVICES.index(name) if name in SERVICES else -1
        )
        last = [name for name in self.servers if name == "kafka"]
        await self.supervisor.drain(
            [*([name] for name in ordered[:1]), ordered[1:], without(self.servers, last), last]
        )


def without(names: Sequence[str], excluded: Sequence[str]) -> list[str]:
    """The names that are not excluded, in their order."""
    return [name for name in names if name not in excluded]


def ignore(_event: Event) -> None:
    """A listener that does nothing."""


@contextlib.asynccontextmanager
async def stack(
    data_dir: Path | str,
    services: Sequence[str | ServiceSpec] = (),
    *,
    listen: Callable[[Event], None] = ignore,
    preferred_ports: Mapping[str, int] = ports.ANY,
    environ: Mapping[str, str] | None = None,
    observe: bool = False,
    kubernetes: bool = False,
) -> AsyncIterator[Stack]:
    """Start everything, yield it ready, and stop it in order; also at SIGTERM.

    observe: also start Prometheus, which scrapes the services.
    kubernetes: also start a Kubernetes cluster; the trainings run in its pods.

    Raises LocalError when another supervisor holds the data directory, or something is missing.
    """
    env = os.environ if environ is None else environ
    folders = open_data_dir(data_dir)
    specs = [service_specs([spec])[0] if isinstance(spec, str) else spec for spec in services]
    if kubernetes:
        cluster = folders.server(laptop.NAME)
        specs = [spec for spec in specs if spec.name != AGENT]
        environment = laptop.agent_environment(cluster)
        specs.append(ServiceSpec(laptop.AGENT, env=environment, stop_ms_max=AGENT_STOP_MS_MAX))
    preferred = ports.with_prometheus(preferred_ports) if observe else preferred_ports
    with hold(folders), _cancelled_by_sigterm(), contextlib.closing(ports.PortClaims()) as claims:
        supervisor = Supervisor(folders, listen)
        await asyncio.to_thread(supervisor.clear_orphans, (*KNOWN, *OPTIONAL, *SERVERS[::-1]))
        if sum(spec.runs in LOADED for spec in specs) >= LOADED_MIN:
            FORKS.prepare(LOADED)  # while the servers start
        trimming = KeptTask(partial(trim_logs_regularly, supervisor), "trim logs", is_watched=False)
        try:
            for choices_left in reversed(range(PORT_CHOICES_MAX)):
                where = configure(folders, listen, preferred, env, claims)
                first = choose_metrics_ports(preferred, claims) if observe else None
                running = Stack(where, supervisor, first)
                try:
                    await _start(running, specs, listen, env, kubernetes=kubernetes)
                    break
                except PortTaken as taken:
                    await running.drain()
                    if not choices_left or is_given(taken.port):
                        raise
                    listen(Notice(f"{taken.what}; starting again with another"))
                except BaseException:
                    await running.drain()
                    raise
            try:
                yield running
            finally:
                await running.drain()
        finally:
            await trimming.stop()


async def _start(
    running: Stack,
    specs: Sequence[ServiceSpec],
    listen: Callable[[Event], None],
    environ: Mapping[str, str],
    *,
    kubernetes: bool,
) -> None:
    """Start servers, then services. Raises LocalError."""
    folders = running.folders
    servers = server_children(running.settings, environ)
    if running.first_metrics_port is not None:
        running.write_scrape_targets()  # without those of the last start
        port = ports.read(folders.ports)[prometheus.NAME]
        servers.append(prometheus.child(folders.server(prometheus.NAME), port))
    if kubernetes:
        servers.append(laptop.child(folders.server(laptop.NAME)))
    running.servers = [server.name for server in servers]
    await own_servers.check(running.settings, environ, lambda text: listen(Notice(text)))
    await running.supervisor.start(servers)
    if specs:
        await running.add(*specs)


def is_given(port: int) -> bool:
    """True if the port is within the range for metrics that the user set in TUNERY_METRICS_PORT."""
    first = os.environ.get(METRICS_PORT, "")
    return first.isdecimal() and 0 <= port - int(first) < len(KNOWN) + ADDED_MAX


@contextlib.contextmanager
def _cancelled_by_sigterm() -> Iterator[None]:
    """SIGTERM cancels this task, unless the program has its own handler.

    Without it a program that gets SIGTERM would leave its servers running.
    """
    has_default = signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if not has_default or threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, _cancel, asyncio.current_task(loop))
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGTERM)


def _cancel(task: "asyncio.Task[Any] | None") -> None:
    if task is None or not task.cancel():  # it has ended: that of a fixture, before its tests
        raise KeyboardInterrupt


def open_data_dir(path: Path | str) -> DataDir:
    """Create the folders of a data directory. Raises LocalError when that is not allowed."""
    folders = DataDir(Path(path).expanduser().absolute())
    try:
        folders.create()
    except OSError as problem:
        raise LocalError(
            f"{folders.root} cannot be the data directory: {problem.strerror}",
            "choose another with --data-dir or TUNERY_DATA_DIR",
        ) from None
    return folders


def configure(
    folders: DataDir,
    listen: Callable[[Event], None],
    preferred_ports: Mapping[str, int],
    environ: Mapping[str, str],
    claims: ports.PortClaims,
) -> settings.Settings:
    """Choose ports and make what is missing of keys; `listen` gets a notice of a changed port."""
    chosen = ports.assign(
        folders.ports, lambda text: listen(Notice(text)), preferred_ports, claims.is_free
    )
    create_key(folders.signing)
    provide_root_key(folders)
    return settings.build(folders, chosen, secrets.load_or_create(folders.secrets), environ)


def provide_root_key(folders: DataDir) -> None:
    """Make the root key, and wrap data keys of before there was one. Raises LocalError."""
    roots = Roots(folders.roots)
    try:
        failed = prepare_root(DirectoryKeyStore(folders.keystore, roots), roots).failed
    except KeyStoreBroken as error:
        raise LocalError(str(error), "docs/how-to/encryption.md says how keys are kept") from error
    if failed:
        tenant, reason = next(iter(failed.items()))
        raise LocalError(
            f"the keys of {len(failed)} tenants could not be wrapped: {tenant}: {reason}",
            "restore the folders keystore and roots from one backup",
        )


def choose_metrics_ports(preferred: Mapping[str, int], claims: ports.PortClaims) -> int:
    """The first port of metrics: $TUNERY_METRICS_PORT, else that of a row of free ones.

    Raises LocalError when there is none, or the variable is no number.
    """
    if own := os.environ.get(METRICS_PORT):
        if not own.isdecimal():
            raise LocalError(
                f"{METRICS_PORT} is {own!r}, no port", "set it to a number or unset it"
            )
        return int(own)
    first = METRICS_PORT_FIRST if any(preferred.values()) else 0
    try:
        return ports.find_block(first, len(KNOWN) + ADDED_MAX, claims.is_free)
    except OSError as problem:
        raise LocalError(str(problem), f"set {METRICS_PORT} to the first of some") from None


def server_children(where: settings.Settings, environ: Mapping[str, str]) -> list[Child]:
    """The embedded servers; those that the user replaced are left out."""
    folders = where.folders
    chosen = ports.read(folders.ports)
    keys = secrets.load(folders.secrets)
    absent = settings.replaced(environ)
    build: dict[str, Callable[[], Child]] = {
        "kafka": lambda: kafka.child(
            folders.server("kafka"), chosen["kafka"], chosen["kafka-controller"], keys
        ),
        "postgres": lambda: postgres.child(
            folders.server("postgres"),
            instance(folders),
            chosen["postgres"],
            keys,
        ),
        "valkey": lambda: valkey.child(
            folders.server("valkey"), chosen["valkey"], keys.valkey_password
        ),
        "s3": lambda: s3.child(folders.server("s3"), chosen["s3"], keys, where.s3_bucket),
    }
    return [build[name]() for name in SERVERS if name not in absent]


def instance(folders: DataDir) -> str:
    """Random id of this data directory; a directory recreated at the same path gets another."""
    file = folders.root / "instance"
    if not file.exists():
        part = file.with_suffix(".part")
        part.write_text(uuid.uuid4().hex, encoding="ascii")
        part.replace(file)
    return file.read_text(encoding="ascii").strip()


@contextlib.contextmanager
def hold(folders: DataDir) -> Iterator[None]:
    """Lock the data directory for one supervisor; the lock ends with the process.

    Raises LocalError when another supervisor holds it.
    """
    with (folders.run / "lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise already_running(folders) from None
        yield


def is_held(folders: DataDir) -> bool:
    """True if a supervisor has locked this data directory."""
    try:
        with (folders.run / "lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def already_running(folders: DataDir) -> LocalError:
    return LocalError(
        f"a stack is already running on {folders.root}",
        "`tunery status` shows it, `tunery down` stops it, --data-dir starts another",
    )


async def trim_logs_regularly(supervisor: Supervisor) -> None:
    """Trim the logs every TRIM_LOGS_MS, until cancelled."""
    while True:
        await asyncio.sleep(TRIM_LOGS_MS / 1000)
        await asyncio.to_thread(supervisor.trim_logs)
