"""Probe of what a process that reads tenants' bytes can reach: runs in it, before its first line.

Python imports it under the name `sitecustomize`, from a folder on PYTHONPATH. Next to it lies
`targets.json`; what it could do is written to the process's own folder.
"""

import json
import os
import pathlib
import resource
import socket
import sys
import time
from collections.abc import Callable

FOLDER = pathlib.Path(__file__).parent
READ_S = 0.5


def probe() -> dict[str, str]:
    """The result of each attempt, or the name of the error that ended it."""
    targets = json.loads((FOLDER / "targets.json").read_text())
    parent, said = os.getppid(), {}

    def attempt(name: str, work: Callable[[], object]) -> None:
        try:
            said[name] = f"done: {work()}"
        except OSError as error:
            said[name] = type(error).__name__

    for kind in ("environ", "mem", "maps", "io"):
        path = pathlib.Path(f"/proc/{parent}/{kind}")
        attempt(f"the parent's {kind}", lambda path=path: path.open("rb").read(1))  # type: ignore[misc]  # no name for it
    for path in map(pathlib.Path, targets.get("read", ())):
        attempt(f"read {path}", lambda path=path: path.open("rb").read(1))  # type: ignore[misc]  # as above
    for path in map(pathlib.Path, targets.get("list", ())):
        attempt(f"list {path}", lambda path=path: list(path.iterdir()))  # type: ignore[misc]  # as above
    for path in map(pathlib.Path, targets.get("write", ())):
        attempt(f"write {path}", lambda path=path: path.open("ab"))  # type: ignore[misc]  # as above
    for host, port in targets.get("connect", ()):
        attempt(
            f"connect {host} {port}",
            lambda address=(host, port): socket.create_connection(address, 2),  # type: ignore[misc]  # as above
        )
    attempt("datagram", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    attempt("local socket", lambda: socket.socket(socket.AF_UNIX))
    attempt("signal the parent", lambda: os.kill(parent, 0))
    attempt("start a process", os.fork)
    status = dict(
        line.split(":\t", 1)
        for line in pathlib.Path("/proc/self/status").read_text().splitlines()
        if ":\t" in line
    )
    for name in ("NoNewPrivs", "Seccomp", "CapEff", "CapBnd"):
        said[name] = status[name].strip()
    said["core"] = str(resource.getrlimit(resource.RLIMIT_CORE)[1])
    said["files"] = str(resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    return said


def main() -> None:
    """Have workers probe, which read what tenants upload."""
    if "tunery.confinement.fork_server" in sys.orig_argv:
        sys.addaudithook(probe_worker)


def probe_worker(event: str, arguments: tuple[object, ...]) -> None:
    """A forked worker says that it begins. What it says is kept by its module, or as a rank's."""
    if event == "tunery.worker_begins":
        module = sys.argv[1] if arguments[0] == "tunery.ml.loaded" else str(arguments[0])
        keep("rank" if "RANK" in os.environ else module)
        time.sleep(READ_S)  # a check of few rows ends, and its folder goes, before that is read


def keep(module: str) -> None:
    if "TMPDIR" in os.environ:  # a preview writes nothing
        (pathlib.Path(os.environ["TMPDIR"]) / f"{module}.json").write_text(json.dumps(probe()))


main()
