"""Namespaces of a process, and of processes of one lease, which reach each other alone."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tunery.confinement import landlock
from tunery.confinement.confined import (
    Confinement,
    ConfineMode,
    private_environment,
    shared_namespaces,
)
from tunery.confinement.enter import CANNOT_CONFINE, free_ports
from tunery.confinement.namespaces import SHARED_MEMORY
from tunery.confinement.policy import ConfinementPolicy, Network

pytestmark = pytest.mark.security

RUN_S_MAX: Final = 60
FIRST, OTHER = "first", "other"
#: two processes: one listens and writes into shared memory, one connects and reads
PROGRAM: Final = """
import ctypes, json, os, pathlib, socket, sys, time
role, port, folder = sys.argv[1], int(sys.argv[2]), pathlib.Path(sys.argv[3])
said = {}
def attempt(name, work):
    try:
        said[name] = str(work())
    except OSError as error:
        said[name] = type(error).__name__
shared = pathlib.Path("/dev/shm/of-the-lease")
if role == "first":
    attempt("share", lambda: shared.write_text("x"))
    with socket.create_server(("127.0.0.1", 0)) as server:
        (folder / "new").write_text(str(server.getsockname()[1]))
        (folder / "new").rename(folder / "port")
        server.accept()[0].sendall(b"hello")
else:
    while not (folder / "port").exists():
        time.sleep(0.02)
    with socket.create_connection(("127.0.0.1", int((folder / "port").read_text())), 30) as one:
        said["other"] = one.recv(9).decode()
    attempt("shared", shared.read_text)
attempt("service", lambda: socket.create_connection(("127.0.0.1", port), 2))
attempt("outside", lambda: socket.create_connection(("192.0.2.1", 443), 2))
attempt("listen at a port of services", lambda: socket.create_server(("127.0.0.1", 80)))
attempt("packets", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW))
attempt("raw", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW))
attempt("vsock", lambda: socket.socket(40))
attempt("firewall", lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12))
attempt("fork", os.fork)
attempt("signal", lambda: os.kill(os.getppid(), 0))
libc = ctypes.CDLL(None, use_errno=True)
said["unshare"] = str((libc.unshare(0x10000000), ctypes.get_errno()))
said["setns"] = str((libc.setns(0, 0), ctypes.get_errno()))
said["interfaces"] = str([name for _, name in socket.if_nameindex()])
attempt("datagram", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM) and "opened")
said["CapEff"] = next(line for line in open("/proc/self/status") if "CapEff" in line).split()[1]
print(json.dumps(said))
"""
REFUSED: Final = frozenset(
    {
        *("service", "outside", "listen at a port of services", "packets", "raw", "vsock"),
        *("firewall", "fork", "signal"),
    }
)
REFUSALS: Final = frozenset(
    {"PermissionError", "BlockingIOError", "OSError", "ConnectionRefusedError"}
)


ENTERS: Final = """
import os
from tunery.confinement import namespaces
namespaces.separate()
namespaces.drop_capabilities()
print(os.readlink("/proc/self/ns/net"))
"""


def test_a_process_enters_a_network_without_interfaces() -> None:
    command = [sys.executable, "-c", ENTERS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() != str(Path("/proc/self/ns/net").readlink())


def said_by_both(
    network: Network, namespaces: tuple[int, ...], folder: Path
) -> dict[str, Mapping[str, str]]:
    """What two processes with these namespaces say."""
    folder.mkdir()
    (folder / "program.py").write_text(PROGRAM)
    policy = ConfinementPolicy(write=(str(folder),), network=network, namespaces=namespaces)
    with socket.create_server(("127.0.0.1", _port_of_a_service())) as service:
        port = str(service.getsockname()[1])
        running = {
            role: subprocess.Popen(
                Confinement().command(
                    [sys.executable, str(folder / "program.py"), role, port, str(folder)], policy
                ),
                cwd=folder,
                env={**os.environ, **private_environment(folder)},
                pass_fds=namespaces,
                stdout=subprocess.PIPE,
            )
            for role in (FIRST, OTHER)
        }
        return {
            role: json.loads(process.communicate(timeout=RUN_S_MAX)[0])
            for role, process in running.items()
        }


def _port_of_a_service() -> int:
    """A port outside the ephemeral range, without a listener."""
    for port in range(9_300, 9_400):
        with socket.socket() as tried:
            if tried.connect_ex(("127.0.0.1", port)):
                return port
    pytest.fail("all of these ports are taken")


@contextmanager
def lease_namespaces(network: Network) -> Iterator[tuple[int, ...]]:
    namespaces = shared_namespaces(network)
    try:
        yield namespaces
    finally:
        for descriptor in namespaces:
            os.close(descriptor)


@pytest.mark.parametrize(
    ("network", "has_namespaces"), [("loopback", True), ("loopback", False), ("fabric", True)]
)
def test_review2_d1_processes_of_a_lease_reach_each_other_alone(
    network: Network, has_namespaces: bool, folder_on_disk: Path
) -> None:
    if not (has_namespaces or landlock.version() >= landlock.NETWORK_VERSION):
        pytest.fail("this kernel's Landlock does not restrict networks")
    if has_namespaces:
        with lease_namespaces(network) as namespaces:
            said = said_by_both(network, namespaces, folder_on_disk / "own")
    else:
        said = said_by_both(network, (), folder_on_disk / "own")
    is_alone = network == "loopback" and has_namespaces
    for role in (FIRST, OTHER):
        reached = {name for name in REFUSED if said[role][name] not in REFUSALS}
        assert reached == set(), said
        assert said[role]["unshare"] == said[role]["setns"] == "(-1, 1)"
        assert int(said[role]["CapEff"], 16) == 0
        assert (said[role]["interfaces"] == "['lo']") is is_alone
        assert (said[role]["datagram"] == "opened") is is_alone
    assert said[OTHER]["other"] == "hello"
    assert said[FIRST]["share"] == ("1" if has_namespaces else "PermissionError")
    assert said[OTHER]["shared"] == ("x" if has_namespaces else "FileNotFoundError")
    assert not Path(SHARED_MEMORY, "of-the-lease").exists(), "it is not the machine's"


def test_two_leases_do_not_share_a_network(tmp_path: Path) -> None:
    """Both have a port 9300 or so of their own, and another `/dev/shm`."""
    with lease_namespaces("loopback") as first, lease_namespaces("loopback") as second:
        assert {os.fstat(each).st_ino for each in first}.isdisjoint(
            os.fstat(each).st_ino for each in second
        )


@pytest.mark.parametrize("mode", ["require", "prefer"])
def test_security_h1_a_process_that_cannot_enter_its_namespaces_ends(mode: ConfineMode) -> None:
    """Outside its namespaces it would be in the machine's network, and may open sockets."""
    other = os.open("/dev/null", os.O_RDONLY)
    policy = ConfinementPolicy(network="loopback", namespaces=(other,))
    command = Confinement(mode).command([sys.executable, "-c", "print('runs')"], policy)
    done = subprocess.run(
        command, pass_fds=(other,), capture_output=True, text=True, timeout=RUN_S_MAX, check=False
    )
    os.close(other)
    assert (done.returncode, done.stdout) == (1, "")
    assert "setns" in done.stderr


def test_security_h1_a_network_that_nothing_restricts_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without namespaces, and with a Landlock that knows no ports, ranks are not started."""
    program = """
import sys
from tunery.confinement import enter, landlock
landlock.version = lambda: 3
enter.main()
"""
    policy = ConfinementPolicy(write=(str(tmp_path),), network="loopback")
    command = Confinement().command([sys.executable, "-c", "1"], policy)
    done = subprocess.run(
        [sys.executable, "-c", program, *command[6:]],
        capture_output=True,
        text=True,
        timeout=RUN_S_MAX,
        check=False,
    )
    assert done.returncode == CANNOT_CONFINE
    assert "version 3 does not restrict networks" in done.stderr


def test_ports_of_connections_are_known() -> None:
    assert {0, 50_000} <= set(free_ports())
    assert not {22, 80, 443, 5_432, 9_092} & set(free_ports())
