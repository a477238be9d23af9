"""A program that has loaded what workers need, and forks a confined one for each task.

`python -m tunery.confinement.fork_server DESCRIPTOR MODULE FOLDER…`, started by `forking`. The
module has `warm(folder)`, called for each folder, and `run(*arguments)`, which is a worker's whole
work. It is confined itself before it loads them, to what all of its workers may do together, has
one thread, and never reads what a tenant uploaded. A worker narrows these rights to its own before
its first line, does one task, and exits.

The descriptor is a socket of the service. A message on it is a task in JSON, with four descriptors:
a socket that gets the worker's process descriptor and then its exit code, and the worker's standard
input, output and error; more are the namespaces that its rights name. When the service ends, the
server ends, and the kernel ends its workers, except those of tasks that outlive it: they have
sessions of their own.
"""

import fcntl
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple, NoReturn

from tunery.confinement.enter import confine
from tunery.confinement.libc import end_with_parent
from tunery.confinement.namespaces import SHARED
from tunery.confinement.policy import FILES_MAX

MESSAGE_BYTES_MAX: Final = 128 * 1024
STANDARD: Final = 3  # descriptors: input, output, error
DESCRIPTORS_MAX: Final = 1 + STANDARD + len(SHARED)  # of a message
#: audited in a worker before its first line, with the name of its module
WORKER_BEGINS: Final = "tunery.worker_begins"


class Worker(NamedTuple):
    """A worker that runs, and the socket that gets its exit code."""

    pid: int
    exits: socket.socket


def main(descriptor: int, name: str, *folders: str) -> None:
    """Load a module, and serve until the service ends. Raises RuntimeError, OSError."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: the service ends it
    control = socket.socket(fileno=descriptor)
    module = importlib.import_module(name)
    for folder in folders:
        module.warm(Path(folder))
    if len(threads := os.listdir("/proc/self/task")) != 1:  # noqa: PTH208  # names alone
        raise RuntimeError(f"{name} started {len(threads) - 1} threads; a fork would lose them")
    os.close(os.pidfd_open(os.getpid()))  # at the start rather than at the first task
    gc.collect()
    gc.freeze()  # so that a worker's collections do not copy what they share
    _serve(control, module)


def _serve(control: socket.socket, module: ModuleType) -> None:
    workers: dict[int, Worker] = {}
    poll = select.poll()
    poll.register(control, select.POLLIN)
    while True:
        for ready, _ in poll.poll():
            if ready != control.fileno():
                poll.unregister(ready)
                _report(ready, workers.pop(ready))
                continue
            message, descriptors, _, _ = socket.recv_fds(
                control, MESSAGE_BYTES_MAX, DESCRIPTORS_MAX
            )
            if not message:
                return
            started = _start(module, json.loads(message), descriptors)
            if started is not None:
                process, worker = started
                workers[process] = worker
                poll.register(process, select.POLLIN)


def _start(
    module: ModuleType, task: dict[str, Any], descriptors: list[int]
) -> tuple[int, Worker] | None:
    """Fork a worker, and return a descriptor of its process; None: its caller has given up."""
    exits = socket.socket(fileno=descriptors[0])
    theirs = descriptors[1:]
    here = select.poll()
    here.register(exits, 0)
    is_awaited = not here.poll(0)  # the other end is open
    parent = os.getpid()
    if is_awaited and (pid := os.fork()) == 0:
        _work(module, task, theirs, parent)
    for descriptor in theirs:
        os.close(descriptor)
    if not is_awaited:
        exits.close()
        return None
    process = os.pidfd_open(pid)
    try:
        socket.send_fds(exits, [str(pid).encode()], [process])
    except OSError:
        os.kill(pid, signal.SIGKILL)
    return process, Worker(pid, exits)


def _report(process: int, worker: Worker) -> None:
    _, status = os.waitpid(worker.pid, 0)
    os.close(process)
    with worker.exits:
        try:
            worker.exits.send(str(os.waitstatus_to_exitcode(status)).encode())
        except OSError:
            return  # its caller has given up


def _work(module: ModuleType, task: dict[str, Any], theirs: list[int], parent: int) -> NoReturn:
    """Be the worker of a task, from the fork to its end."""
    code = 1
    try:
        _become_worker(task, theirs, parent)
        sys.argv = [module.__name__, *task["arguments"]]
        sys.audit(WORKER_BEGINS, module.__name__)
        module.run(*task["arguments"])
        sys.stdout.flush()
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
        if code and not isinstance(error.code, int):
            sys.stderr.write(f"{error.code}\n")
    except BaseException:  # as the interpreter does: its text goes to stderr
        traceback.print_exc()
    finally:
        os._exit(code)


def _become_worker(task: dict[str, Any], theirs: list[int], parent: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.nice(task["niceness"])
    # first out of the way of each other
    moved = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, DESCRIPTORS_MAX) for descriptor in theirs]
    for number, descriptor in enumerate(moved):
        os.dup2(descriptor, number)
    os.closerange(len(theirs), FILES_MAX)
    os.environ.update(task["environment"])
    if task.get("outlives"):
        os.setsid()  # which a confined process may not
    if task["rights"] is not None:
        confine({**task["rights"], "namespaces": range(STANDARD, len(theirs))})
    if not task.get("outlives"):
        end_with_parent(parent)


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
