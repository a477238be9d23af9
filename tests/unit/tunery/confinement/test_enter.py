"""A confined process is asked what it can do; the kernel answers. Nothing here needs root."""

import json
import os
import resource
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pytest

from tunery.confinement.confined import Confinement, private_environment, start_arguments
from tunery.confinement.enter import CANNOT_CONFINE
from tunery.confinement.policy import ConfinementPolicy, with_links
from tunery.confinement.support import TRIAL_POLICY

pytestmark = pytest.mark.security

TRIES: Final = """
import json, os, pathlib, resource, signal, socket, subprocess, sys, tempfile, threading
parent, lines = os.getppid(), {}
def attempt(name, work):
    try:
        lines[name] = str(work())
    except BaseException as error:
        lines[name] = type(error).__name__
names = json.loads(sys.argv[1])
"""
SAYS: Final = "\nprint(json.dumps(lines))"
RUN_S_MAX: Final = 60


def outcomes(
    tries: str,
    policy: ConfinementPolicy,
    names: dict[str, Any],
    folder: Path,
    mode: Any = "require",
) -> dict[str, str]:
    """What a confined process says of attempts: their results, or names of exceptions."""
    program = [sys.executable, "-c", TRIES + tries + SAYS, json.dumps(names)]
    said = subprocess.run(
        Confinement(mode).command(program, policy),
        cwd=folder,
        env={**os.environ, **private_environment(folder)},
        capture_output=True,
        timeout=RUN_S_MAX,
        check=True,
    )
    answer: dict[str, str] = json.loads(said.stdout)
    return answer


def assert_refused(said: dict[str, str], allowed: Sequence[str] = ()) -> None:
    """All attempts but the allowed ones ended with an error of the kernel."""
    wrong = {name: text for name, text in said.items() if text not in REFUSALS}
    assert sorted(wrong) == sorted(allowed), said


REFUSALS: Final = ("PermissionError", "BlockingIOError", "OSError")


@pytest.fixture
def own(tmp_path: Path) -> Path:
    (tmp_path / "own").mkdir(mode=0o700)
    return tmp_path / "own"


def test_security_h1_files_that_no_rule_names_are_refused(tmp_path: Path, own: Path) -> None:
    (tmp_path / "base").mkdir()
    (tmp_path / "secret").write_text("of another tenant")
    (tmp_path / "weights").write_text("in a cache")
    (tmp_path / "base" / "weights").symlink_to(tmp_path / "weights")
    tries = """
attempt("own", lambda: pathlib.Path("own").write_text("x"))
attempt("base", lambda: pathlib.Path(names["base"], "weights").read_text())
attempt("secret", lambda: pathlib.Path(names["secret"]).read_text())
attempt("list", lambda: os.listdir(pathlib.Path(names["secret"]).parent))
attempt("change base", lambda: pathlib.Path(names["base"], "weights").write_text("x"))
attempt("add to base", lambda: pathlib.Path(names["base"], "more").write_text("x"))
attempt("shadow", lambda: pathlib.Path("/etc/shadow").read_bytes())
attempt("tmp", lambda: pathlib.Path("/tmp/tunery-x").write_text("x"))
attempt("shared memory", lambda: pathlib.Path("/dev/shm/tunery-x").write_text("x"))
attempt("link", lambda: os.symlink(names["secret"], "link"))
attempt("pipe", lambda: os.mkfifo("pipe"))
attempt("out", lambda: os.rename("own", names["secret"]))
attempt("environ", lambda: pathlib.Path(f"/proc/{parent}/environ").read_bytes())
attempt("memory", lambda: open(f"/proc/{parent}/mem", "rb"))
attempt("files", lambda: os.readlink(f"/proc/{parent}/fd/0"))
attempt("temporary", lambda: tempfile.gettempdir())
"""
    base = tmp_path / "base"
    policy = ConfinementPolicy(read=with_links([base]), write=(str(own),))
    names = {"base": str(base), "secret": str(tmp_path / "secret")}
    said = outcomes(tries, policy, names, own)
    assert_refused(said, ("own", "base", "temporary"))
    assert (said["base"], said["temporary"]) == ("in a cache", str(own / "tmp"))
    assert list((own / "tmp").iterdir()) == []


def test_drivers_of_accelerators_name_threads_and_listen_and_cannot_connect(own: Path) -> None:
    """CUDA 13 fails with error 304 where it cannot do both, as an H200 showed."""
    tries = """
def renamed(pid, thread):
    return pathlib.Path(f"/proc/{pid}/task/{thread}/comm").write_text("cuda")
def named():
    attempt("thread", lambda: renamed("self", threading.get_native_id()))
thread = threading.Thread(target=named)
thread.start(); thread.join()
attempt("parent", lambda: renamed(parent, parent))
attempt("parent's end", lambda: pathlib.Path(f"/proc/{parent}/oom_score_adj").write_text("500"))
attempt("machine", lambda: pathlib.Path("/proc/sys/kernel/core_pattern").write_text("x"))
def listening():
    one = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    one.bind("\\0tunery-test"); one.listen()
attempt("listen", listening)
attempt("datagram", lambda: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
def connected():
    with socket.socket(socket.AF_UNIX) as one:
        one.connect(names["socket"])
attempt("connect", connected)
attempt("network", lambda: socket.socket(socket.AF_INET))
"""
    with TemporaryDirectory() as name, socket.socket(socket.AF_UNIX) as service:
        service.bind(f"{name}/service")  # a short name: those of sockets are limited
        service.listen()
        names = {"socket": f"{name}/service"}
        said = outcomes(tries, ConfinementPolicy(accelerators=True), names, own)
        none = outcomes(tries, ConfinementPolicy(), names, own)
    assert said.pop("connect") == "FileNotFoundError"
    assert_refused(said, ("thread", "listen"))
    assert_refused(none)


def test_security_h1_there_is_no_network_and_no_other_process(own: Path) -> None:
    tries = """
def connected(family, address):
    with socket.socket(family) as one:
        one.connect(address)
attempt("loopback", lambda: connected(socket.AF_INET, ("127.0.0.1", names["port"])))
attempt("outside", lambda: connected(socket.AF_INET, ("192.0.2.1", 80)))
attempt("udp", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
attempt("ipv6", lambda: socket.socket(socket.AF_INET6))
attempt("netlink", lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW))
attempt("packets", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW))
attempt("unix", lambda: socket.socket(socket.AF_UNIX))
attempt("signal", lambda: os.kill(parent, 0))
attempt("end", lambda: os.kill(parent, signal.SIGTERM))
attempt("fork", lambda: os.fork())
attempt("start", lambda: subprocess.run(["true"]))
attempt("session", lambda: os.setsid())
attempt("nice", lambda: os.nice(-5))
attempt("pair", lambda: [end.close() for end in socket.socketpair()])
attempt("own signal", lambda: os.kill(os.getpid(), 0))
thread = threading.Thread(target=lambda: attempt("thread", lambda: 1))
thread.start(); thread.join()
"""
    with socket.create_server(("127.0.0.1", 0)) as server:
        names = {"port": server.getsockname()[1]}
        said = outcomes(tries, ConfinementPolicy(write=(str(own),)), names, own)
    assert_refused(said, ("pair", "own signal", "thread"))


def test_security_h1_calls_that_reach_into_the_system_are_refused(own: Path) -> None:
    calls = {"ptrace": 101, "bpf": 321, "mount": 165, "unshare": 272, "io_uring": 425, "keys": 250}
    tries = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
for name, number in names.items():
    lines[name] = str((libc.syscall(number, 0, 0, 0, 0, 0), ctypes.get_errno()))
lines["clone3"] = str((libc.syscall(435, 0, 0), ctypes.get_errno()))
lines["newer than the filter"] = str((libc.syscall(9999, 0, 0), ctypes.get_errno()))
status = dict(line.split(":\\t", 1) for line in open("/proc/self/status") if ":\\t" in line)
for name in ("NoNewPrivs", "Seccomp", "CapEff", "CapPrm", "CapBnd"):
    lines[name] = str(int(status[name].strip(), 16))
for kind in ("ipc", "net", "user"):
    lines[kind] = os.readlink(f"/proc/self/ns/{kind}")
"""
    if os.uname().machine != "x86_64":
        pytest.fail("numbers of calls are those of x86-64")
    said = outcomes(tries, ConfinementPolicy(write=(str(own),)), calls, own)
    assert {said[name] for name in calls} == {"(-1, 1)"}
    assert said["clone3"] == said["newer than the filter"] == "(-1, 38)"
    assert (said["NoNewPrivs"], said["Seccomp"]) == ("1", "2")
    assert said["CapEff"] == said["CapPrm"] == said["CapBnd"] == "0"
    for kind in ("ipc", "net", "user"):
        assert said[kind] != str(Path(f"/proc/self/ns/{kind}").readlink())


def test_security_h1_modes_owners_and_limits_of_others_stay(tmp_path: Path, own: Path) -> None:
    """Landlock does not restrict these, and the files and processes are of the same user."""
    secret = tmp_path / "secret"
    secret.write_text("of another tenant")
    secret.chmod(0o600)
    before = secret.stat()
    limit = resource.getrlimit(resource.RLIMIT_CORE)
    tries = """
path = names["secret"]
attempt("mode", lambda: os.chmod(path, 0o777))
attempt("owner", lambda: os.chown(path, os.getuid(), os.getgid()))
attempt("attribute", lambda: os.setxattr(path, "user.x", b"y"))
attempt("length", lambda: os.truncate(path, 0))
attempt("limit of another", lambda: resource.prlimit(parent, resource.RLIMIT_CORE, (0, 0)))
attempt("own limit", lambda: resource.prlimit(0, resource.RLIMIT_CORE, (0, 0)))
"""
    said = outcomes(tries, ConfinementPolicy(write=(str(own),)), {"secret": str(secret)}, own)
    after = secret.stat()
    assert (after.st_mode, after.st_ctime_ns) == (before.st_mode, before.st_ctime_ns)
    assert secret.read_text() == "of another tenant"
    assert resource.getrlimit(resource.RLIMIT_CORE) == limit
    assert_refused(said, ("mode", "owner", "own limit"))  # libraries expect success of the first


def test_security_h1_memory_files_and_time_are_limited(own: Path) -> None:
    tries = """
attempt("memory", lambda: len(bytearray(1 << 30)))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
attempt("file", lambda: pathlib.Path("large").write_bytes(bytes(2 << 20)))
attempt("descriptors", lambda: resource.getrlimit(resource.RLIMIT_NOFILE)[1])
attempt("core", lambda: resource.getrlimit(resource.RLIMIT_CORE))
attempt("time", lambda: resource.getrlimit(resource.RLIMIT_CPU)[1])
attempt("raise", lambda: resource.setrlimit(resource.RLIMIT_CPU, (99, 99)))
"""
    policy = ConfinementPolicy(
        write=(str(own),), memory_bytes_max=512 << 20, file_bytes_max=1 << 20, cpu_s_max=30
    )
    said = outcomes(tries, policy, {}, own)
    assert said["memory"] == "MemoryError"
    assert said["file"] == "OSError"
    assert (said["core"], said["time"], said["raise"]) == ("(0, 0)", "30", "ValueError")
    assert int(said["descriptors"]) <= 4_096


def test_a_process_that_may_start_others_confines_them_too(tmp_path: Path, own: Path) -> None:
    (tmp_path / "secret").write_text("x")
    tries = """
attempt("start", lambda: subprocess.run(["cat", names["secret"]], capture_output=True).returncode)
"""
    policy = ConfinementPolicy(write=(str(own),), processes=True)
    said = outcomes(tries, policy, {"secret": str(tmp_path / "secret")}, own)
    assert said["start"] == "1", "cat has started, and could not read"


def test_links_and_sockets_are_made_in_the_folders_for_them(tmp_path: Path, own: Path) -> None:
    names = {"links": str(tmp_path / "links"), "sockets": str(tmp_path / "sockets")}
    for path in names.values():
        Path(path).mkdir()
    tries = """
def listen(folder):
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"{folder}/socket")
for folder in ("links", "sockets"):
    attempt(f"link in {folder}", lambda: os.symlink("/etc/shadow", f"{names[folder]}/link"))
    attempt(f"socket in {folder}", lambda: listen(names[folder]))
attempt("link in own", lambda: os.symlink("/etc/shadow", "link"))
attempt("socket in own", lambda: listen("."))
attempt("shadow", lambda: pathlib.Path(names["links"], "link").read_bytes())
attempt("network", lambda: socket.socket(socket.AF_INET))
"""
    policy = ConfinementPolicy(
        write=(str(own), *names.values()), links=(names["links"],), sockets=(names["sockets"],)
    )
    said = outcomes(tries, policy, names, own)
    assert_refused(said, ["link in links", "socket in sockets"])


@pytest.mark.parametrize("mode", ["require", "prefer"])
def test_security_h1_a_wall_that_is_missing_is_named_or_refused(mode: str, own: Path) -> None:
    """Inside a confined process without sockets of Landlock: a second one cannot unshare."""
    inner = {
        **TRIAL_POLICY,
        "write": [str(own)],
        "processes": True,
        "required": ["namespaces"] if mode == "require" else [],
    }
    command = start_arguments(json.dumps(inner), sys.executable, "-c", "print('runs')")
    outer = Confinement().command(command, ConfinementPolicy(write=(str(own),), processes=True))
    done = subprocess.run(outer, capture_output=True, text=True, timeout=RUN_S_MAX, check=False)
    if mode == "prefer":
        assert (done.returncode, done.stdout) == (0, "runs\n"), done.stderr
    else:
        assert done.returncode == CANNOT_CONFINE
        assert "cannot confine the process: namespaces" in done.stderr
