"""Stands in for `tunery.ml.loaded`, without the seconds of its imports."""

import json
import os
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NoReturn


def namespaces() -> dict[str, int]:
    """Numbers of the namespaces of this process."""
    return {name: Path(f"/proc/self/ns/{name}").stat().st_ino for name in ("net", "ipc", "mnt")}


OF_SERVER: Final = namespaces()


def warm(_folder: Path) -> None:
    """Nothing is loaded, unless this is the server that dies."""
    if "TOY_DIES" in os.environ:
        sys.exit("no library here")


def run(module: str, spec: str, folder: str) -> NoReturn:
    """Say what it is, then do what the spec says."""
    os.chdir(folder)
    devices = os.environ["CUDA_VISIBLE_DEVICES"]
    if spec == "meets":  # what ranks print are events
        meet()
    print(json.dumps([os.getpid(), str(Path.cwd()), module, devices]), flush=True)
    match spec:
        case "waits":
            time.sleep(60)
        case "reads":
            print(sys.stdin.readline(), end="", flush=True)
        case "escapes":
            probe(Path(folder))
        case _:
            pass
    sys.stderr.write("its last words")
    sys.stderr.flush()
    os._exit(3)


def meet() -> NoReturn:
    """Send the other rank a word over the network; say which namespaces are not the server's."""
    rank, port = os.environ["RANK"], Path("port")
    if rank == "0":
        with socket.create_server(("127.0.0.1", 0)) as server:
            Path("port.part").write_text(str(server.getsockname()[1]))
            Path("port.part").rename(port)
            with server.accept()[0] as other:
                sys.stderr.write(f"rank 0 met rank {other.recv(1).decode()}\n")
    else:
        while not port.exists():
            time.sleep(0.01)
        with socket.create_connection(("127.0.0.1", int(port.read_text()))) as other:
            other.sendall(rank.encode())
    for name, number in namespaces().items():
        if number != OF_SERVER[name]:
            sys.stderr.write(f"own {name}\n")
    sys.stderr.flush()
    os._exit(75)  # preempted: as of all ranks


def probe(folder: Path) -> None:
    """Try what no process of a lease may do."""
    attempts: dict[str, Callable[[], object]] = {
        "own": lambda: (folder / "own").write_text("x"),
        "another's": (folder.parent / "secret").read_text,
        "passwords": Path("/etc/shadow").read_bytes,
        "its server": Path(f"/proc/{os.getppid()}/environ").read_bytes,
    }
    for name, attempt in attempts.items():
        try:
            attempt()
        except OSError as error:
            print(name, type(error).__name__, flush=True)
        else:
            print(name, "done", flush=True)
