"""A worker that does what it is told, for tests of how workers are started.

It has no library: what it says is about its process.
"""

import json
import os
import resource
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

WARM: Final[list[str]] = []
FOLDER: Final = str(Path(__file__).parent)
MODULE: Final = Path(__file__).stem


def warm(folder: Path) -> None:
    WARM.append(str(folder))
    if (folder / "thread").exists():
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    if (folder / "dies").exists():
        os.register_at_fork(after_in_parent=lambda: os.kill(os.getpid(), signal.SIGKILL))


def run(action: str, *arguments: str) -> None:
    match action:
        case "describe":
            answer(describe())
        case "probe":
            answer(probe(*map(Path, arguments)))
        case "fail":
            raise ValueError("words of a tenant")
        case "wait":
            answer({"pid": os.getpid()})
            time.sleep(60)
        case "fill":
            answer({"size": len(bytearray(int(arguments[0])))})
        case "echo":
            os.write(1, sys.stdin.buffer.read())
        case _:
            raise ValueError(action)


def answer(facts: object) -> None:
    print(json.dumps(facts), flush=True)


def describe() -> dict[str, object]:
    """What is the same however a worker was started."""
    return {
        "arguments": sys.argv[1:],
        "niceness": os.getpriority(os.PRIO_PROCESS, 0),
        "home": os.environ.get("HOME"),
        "descriptors": len(os.listdir("/proc/self/fd")) - 1,  # noqa: PTH208  # its own is open
        "threads": len(os.listdir("/proc/self/task")),  # noqa: PTH208  # names alone
        "memory": resource.getrlimit(resource.RLIMIT_DATA),
        "files": resource.getrlimit(resource.RLIMIT_NOFILE),
        "core": resource.getrlimit(resource.RLIMIT_CORE),
        "interrupt": signal.getsignal(signal.SIGINT) == signal.SIG_IGN,
    }


def probe(own: Path, other: Path) -> dict[str, str]:
    """Results of attempts, or the names of exceptions. own: its folder. other: one beside it."""
    said: dict[str, str] = {}
    parent = os.getppid()

    def attempt(name: str, work: Callable[[], object]) -> None:
        try:
            said[name] = str(work())
        except OSError as error:
            said[name] = type(error).__name__

    attempt("own", lambda: (own / "answer").write_text("x"))
    attempt("read another's", (other / "rows").read_text)
    attempt("write another's", lambda: (other / "more").write_text("x"))
    attempt("list all", lambda: list(own.parent.iterdir()))
    attempt("move out", lambda: (own / "answer").rename(other / "answer"))
    attempt("passwords", lambda: Path("/etc/shadow").read_bytes())
    for kind in ("environ", "mem", "maps"):
        path = Path(f"/proc/{parent}/{kind}")
        attempt(f"the parent's {kind}", lambda path=path: path.open("rb").read(1))  # type: ignore[misc]  # no name for it
    attempt("the parent's files", lambda: os.readlink(f"/proc/{parent}/fd/0"))  # noqa: PTH115  # no path of it
    attempt("signal", lambda: os.kill(parent, 0))
    attempt("fork", os.fork)
    attempt("session", os.setsid)
    attempt("network", lambda: socket.socket(socket.AF_INET))
    attempt("local socket", lambda: socket.socket(socket.AF_UNIX))
    attempt("first", lambda: os.nice(-1))
    attempt("descriptor", lambda: signal.pidfd_send_signal(os.pidfd_open(parent), 0))
    status = dict(
        line.split(":\t", 1)
        for line in Path("/proc/self/status").read_text().splitlines()
        if ":\t" in line
    )
    for name in ("NoNewPrivs", "Seccomp", "CapEff", "CapBnd", "Threads"):
        said[name] = status[name].strip()
    return said


if __name__ == "__main__":
    run(*sys.argv[1:])
