"""Services of a local stack, the lock and the id of its data directory, its ports."""

import asyncio
import contextlib
import json
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tunery.local import ports, prometheus, settings
from tunery.local.errors import LocalError
from tunery.local.events import Changed, Event, Notice, Phase
from tunery.local.paths import DataDir
from tunery.local.secrets import load_or_create
from tunery.local.stack import (
    ADDED_MAX,
    AGENT,
    AGENT_STOP_MS_MAX,
    KNOWN,
    METRICS_PORT,
    SERVICES,
    ServiceSpec,
    Stack,
    choose_metrics_ports,
    hold,
    instance,
    is_held,
    open_data_dir,
    provide_root_key,
    service_specs,
    stack,
    without,
)
from tunery.local.supervisor import Supervisor
from tunery.platform.seal.directory import DirectoryKeyStore
from tunery.platform.seal.roots import Roots
from tunery.platform.seal.sealer import Sealer


def folders_in(tmp_path: Path) -> DataDir:
    folders = DataDir(tmp_path)
    folders.create()
    return folders


def test_only_the_agent_may_take_a_minute_to_stop() -> None:
    slow = [spec.name for spec in service_specs(SERVICES) if spec.stop_ms_max > 15_000]
    assert slow == [AGENT]
    assert service_specs([AGENT])[0].child({}, Path("/d")).stop_ms_max == AGENT_STOP_MS_MAX


def test_an_unknown_service_is_named_with_the_known_ones() -> None:
    with pytest.raises(LocalError, match="no service typo, other") as refused:
        service_specs(["gateway", "typo", "other"])
    assert "scheduler" in refused.value.fix
    assert service_specs([]) == ()


def test_services_that_answer_requests_keep_their_priority() -> None:
    gateway, trainer = (
        ServiceSpec(name).child({}, Path("/d")).argv for name in ("gateway", "trainer")
    )
    assert gateway[1:] == ("-m", "services.gateway")
    assert trainer[:3] == ("nice", "-n", "5")
    assert trainer[-1] == "services.trainer"


def test_variables_of_a_spec_replace_those_of_the_stack() -> None:
    spec = ServiceSpec("gateway", argv=("own",), env={"A": "spec"})
    child = spec.child({"A": "stack", "B": "stack"}, Path("/d"))
    assert (child.argv, dict(child.env)) == (("own",), {"A": "spec", "B": "stack"})


def test_one_supervisor_holds_a_data_directory(tmp_path: Path) -> None:
    folders = folders_in(tmp_path)
    assert not is_held(folders)
    with hold(folders):
        assert is_held(folders)
        with pytest.raises(LocalError, match="already running"), hold(folders):
            pytest.fail("two supervisors hold one data directory")
    assert not is_held(folders)


def test_a_data_directory_keeps_its_id_and_a_new_one_gets_another(tmp_path: Path) -> None:
    left, right = folders_in(tmp_path / "a"), folders_in(tmp_path / "b")
    assert instance(left) == instance(left) != instance(right)
    assert len(instance(left)) == 32


def test_a_path_that_cannot_be_a_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(LocalError, match="cannot be the data directory"):
        open_data_dir(tmp_path / "file" / "data")


def test_excluded_names_are_left_out_in_order() -> None:
    assert without(["c", "a", "b"], ["a", "x"]) == ["c", "b"]


def stack_in(tmp_path: Path, first_metrics_port: int | None = None) -> Stack:
    """A stack that is not started."""
    chosen = dict.fromkeys(("gateway", "kafka", "postgres", "valkey", "s3"), 1)
    keys = load_or_create(tmp_path / "secrets.json")
    where = settings.build(DataDir(tmp_path), chosen, keys, {})
    supervisor = Supervisor(DataDir(tmp_path), lambda _event: None)
    return Stack(where, supervisor, first_metrics_port)


def test_each_process_gets_a_port_of_its_own_for_its_metrics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack = stack_in(tmp_path)
    monkeypatch.delenv("TUNERY_METRICS_PORT", raising=False)
    assert stack.metrics_port("gateway") == {}
    monkeypatch.setenv("TUNERY_METRICS_PORT", "9400")
    stack.services += [*SERVICES, "trainer-2", "trainer-3"]
    assigned = [
        stack.metrics_port(name)["TUNERY_METRICS_PORT"]
        for name in (*SERVICES, "exporter", "trainer-2", "trainer-3")
    ]
    assert assigned == [str(9400 + number) for number in range(len(SERVICES) + 3)]


def test_prometheus_scrapes_every_process_at_its_port(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(METRICS_PORT, raising=False)
    plain, observed = stack_in(tmp_path), stack_in(tmp_path, 9500)
    plain.services = observed.services = ["gateway", "scheduler", "agent-b"]
    folder = tmp_path / "prometheus"
    plain.write_scrape_targets()
    assert not folder.exists()
    observed.write_scrape_targets()
    groups = json.loads(prometheus.targets_file(folder).read_text(encoding="utf-8"))
    assert {group["labels"]["service"]: group["targets"] for group in groups} == {
        name: [f"127.0.0.1:{port}"]
        for name, port in (
            ("gateway", 9500),
            ("scheduler", 9500 + SERVICES.index("scheduler")),
            ("agent-b", 9500 + len(KNOWN)),
        )
    }


def test_metrics_ports_come_from_the_variable_else_are_free_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wanted: list[tuple[int, int]] = []
    claims = ports.PortClaims()

    def find_block(first: int, count: int, _free: Callable[[int], bool]) -> int:
        wanted.append((first, count))
        if len(wanted) > 2:
            raise OSError("no free ports")
        return 7

    monkeypatch.setattr(ports, "find_block", find_block)
    monkeypatch.setenv(METRICS_PORT, "9700")
    assert choose_metrics_ports(ports.PREFERRED, claims) == 9700
    monkeypatch.setenv(METRICS_PORT, "any")
    with pytest.raises(LocalError, match="'any', no port"):
        choose_metrics_ports(ports.PREFERRED, claims)
    monkeypatch.delenv(METRICS_PORT)
    assert (
        choose_metrics_ports(ports.PREFERRED, claims)
        == choose_metrics_ports(ports.ANY, claims)
        == 7
    )
    count = len(KNOWN) + ADDED_MAX
    assert wanted == [(9400, count), (0, count)]
    with pytest.raises(LocalError, match="no free ports") as refused:
        choose_metrics_ports(ports.ANY, claims)
    assert METRICS_PORT in refused.value.fix


def test_a_data_directory_from_before_root_keys_is_migrated(tmp_path: Path) -> None:
    folders = folders_in(tmp_path)
    sealed = Sealer(DirectoryKeyStore(folders.keystore)).seal("acme", "text", "name")
    provide_root_key(folders)
    provide_root_key(folders)
    assert (folders.roots / "default.json").stat().st_mode & 0o777 == 0o600
    assert b"secret" not in (folders.keystore / "acme.key").read_bytes()
    keys = DirectoryKeyStore(folders.keystore, Roots(folders.roots))
    assert Sealer(keys).open(sealed, "name") == "text"


def test_a_stack_whose_root_key_is_lost_does_not_start(tmp_path: Path) -> None:
    folders = folders_in(tmp_path)
    provide_root_key(folders)
    DirectoryKeyStore(folders.keystore, Roots(folders.roots)).get("acme")
    (folders.roots / "default.json").unlink()
    with pytest.raises(LocalError, match="restore it from a backup"):
        provide_root_key(folders)


SERVES = """
import os, socket, time
own = socket.socket()
own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
try:
    own.bind(("127.0.0.1", int(os.environ["TUNERY_GATEWAY_PORT"])))
    own.listen()
    print('{"event":"process.ready"}', flush=True)
except OSError as error:
    print(error, flush=True)
time.sleep(60)
"""
IDLES = """
import time
print('{"event":"process.ready"}', flush=True)
time.sleep(60)
"""
GATEWAY = ServiceSpec("gateway", argv=(sys.executable, "-S", "-c", SERVES))


@pytest.fixture
def no_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        sys.modules[Stack.__module__], "server_children", lambda _where, _environ: []
    )


@pytest.mark.usefixtures("no_servers")
async def test_first_hour2_u1_a_port_that_is_taken_before_it_is_bound_is_replaced(
    tmp_path: Path,
) -> None:
    notes: list[str] = []
    with contextlib.closing(socket.socket()) as thief:

        def listen(event: Event) -> None:
            if isinstance(event, Notice):
                notes.append(event.text)
            elif isinstance(event, Changed) and event.phase is Phase.PREPARING and not stolen:
                stolen.append(ports.read(DataDir(tmp_path).ports)["gateway"])
                thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                thief.bind((ports.HOST, stolen[0]))
                thief.listen()

        stolen: list[int] = []
        async with asyncio.timeout(180), stack(tmp_path, [GATEWAY], listen=listen) as running:
            api_port = running.settings.gateway_port
            assert ports.read(running.folders.ports)["gateway"] == api_port != stolen[0]
            with socket.create_connection((ports.HOST, api_port), 5):
                pass
    assert notes[0].startswith(f"port {stolen[0]}, chosen for gateway, was taken")


@pytest.mark.usefixtures("no_servers")
async def test_services_start_while_accounts_of_nodes_are_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready, nodes = asyncio.Event(), list[str]()

    def listen(event: Event) -> None:
        if isinstance(event, Changed) and (event.name, event.phase) == ("gateway", Phase.READY):
            ready.set()

    async def add_accounts(_stack: Stack, principals: list[str]) -> None:
        await ready.wait()
        nodes.extend(principals)

    monkeypatch.setattr(Stack, "add_accounts", add_accounts)
    argv = (sys.executable, "-S", "-c", IDLES)
    agent = ServiceSpec("agent-a", argv=argv, env={"TUNERY_NODE_ID": "a"})
    async with asyncio.timeout(180), stack(tmp_path, [agent, GATEWAY], listen=listen) as running:
        assert nodes == [agent.principal]
        assert running.supervisor.pid("agent-a") is not None


@pytest.mark.usefixtures("no_servers")
async def test_first_hour2_u1_two_stacks_that_start_at_once_both_come_up(tmp_path: Path) -> None:
    async def start(name: str, both: asyncio.Barrier) -> int:
        async with stack(tmp_path / name, [GATEWAY], preferred_ports=ports.PREFERRED) as running:
            await both.wait()
            return running.settings.gateway_port

    both = asyncio.Barrier(2)
    async with asyncio.timeout(180):
        first, second = await asyncio.gather(start("a", both), start("b", both))
    assert first != second


@pytest.mark.usefixtures("no_servers")
async def test_first_hour2_u1_a_port_of_metrics_that_the_user_chose_is_named_and_not_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as other:
        other.bind((ports.HOST, 0))
        other.listen()
        port = other.getsockname()[1]
        monkeypatch.setenv(METRICS_PORT, str(port))
        code = SERVES.replace("TUNERY_GATEWAY_PORT", METRICS_PORT)
        spec = ServiceSpec("gateway", argv=(sys.executable, "-S", "-c", code))
        with pytest.raises(LocalError) as refused:
            async with asyncio.timeout(180), stack(tmp_path, [spec]):
                raise AssertionError("its port is taken")
    assert refused.value.what.startswith(f"port {port}, chosen for metrics of gateway")
