"""Start of a fork server by a service, and of workers by it. See `fork_server`."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import weakref
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from tunery.confinement.confined import Confinement
from tunery.confinement.fork_server import MESSAGE_BYTES_MAX
from tunery.confinement.policy import ConfinementPolicy

PROGRAM: Final = "tunery.confinement.fork_server"
CODE_BYTES_MAX: Final = 64
KILLED: Final = -signal.SIGKILL
#: threads of numpy's linear algebra would be lost in a fork
ONE_THREAD: Final = {"OPENBLAS_NUM_THREADS": "1"}


class ForkServer:
    """A fork server that runs, until its `close` or the end of this process.

    module: with `warm` and `run`
    folders: for which `warm` was called; its workers may read them
    policy: what all of its workers may do together
    """

    def __init__(
        self,
        module: str,
        folders: Sequence[str],
        policy: ConfinementPolicy,
        confinement: Confinement,
        environment: Mapping[str, str],
        *,
        errors: int | None = None,
        detached: bool = False,
    ) -> None:
        """Start it. It loads while this continues. Raises OSError.

        errors: descriptor of its standard error; None: that of this process
        detached: run in a separate session, which a terminal does not end, and in no folder
        """
        self.folders, self._policy = tuple(folders), policy
        self._identities = _identities(policy)
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = (sys.executable, "-m", PROGRAM, str(theirs.fileno()), module, *folders)
        with theirs:
            process = subprocess.Popen(
                confinement.command(command, policy),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                pass_fds=(theirs.fileno(),),
                env=environment,
                cwd="/" if detached else None,
                start_new_session=detached,
            )
        self.pid = process.pid
        self.close = weakref.finalize(self, _end, self._control, process)

    def has(self, folders: Iterable[str], policy: ConfinementPolicy) -> bool:
        """Return whether these folders are warm here, and a worker may get the rights of a policy.

        Rights are to files, not to names: a file that was replaced is another one.
        """
        return (
            set(folders) <= set(self.folders)
            and self._policy.covers(policy)
            and self._identities == _identities(self._policy)
        )

    async def start(
        self, task: Mapping[str, Any], standard: Sequence[int], namespaces: Sequence[int] = ()
    ) -> "ForkedWorker | None":
        """Fork a worker with these descriptors as its standard input, output and error.

        task: `arguments`, `environment`, `niceness`, `rights` of `Confinement`, and whether the
            worker outlives the server
        namespaces: descriptors of those that it shares with others
        None where no server answered: then no worker was started.
        """
        message = json.dumps(task).encode()
        if len(message) > MESSAGE_BYTES_MAX:
            return None
        exits, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        exits.setblocking(False)
        try:
            with theirs:
                sent = (theirs.fileno(), *standard, *namespaces)
                socket.send_fds(self._control, [message], sent, socket.MSG_DONTWAIT)
            await _readable(exits)
            flags = socket.MSG_CMSG_CLOEXEC
            pid, descriptors, _, _ = socket.recv_fds(exits, CODE_BYTES_MAX, 1, flags)
        except OSError:
            pid, descriptors = b"", []
        except BaseException:
            exits.close()
            raise
        if not descriptors:
            exits.close()
            return None
        return ForkedWorker(exits, descriptors[0], int(pid))


class ForkedWorker:
    """A worker that was forked. Call `close` in the end."""

    def __init__(self, exits: socket.socket, process: int, pid: int) -> None:
        """exits: gets its exit code. process: a descriptor of it, which no other one can get.

        pid: its id, as its server sees it.
        """
        self._exits, self._process, self.pid = exits, process, pid
        self._code: int | None = None

    async def wait(self) -> int:
        """Its exit code, negative for a signal. A server that ends takes its workers with it."""
        if self._code is None:
            await _readable(self._exits)
            try:
                said = self._exits.recv(CODE_BYTES_MAX)
            except OSError:
                said = b""
            if not said:
                self.kill()
            self._code = int(said or KILLED)
        return self._code

    def signal(self, number: int) -> None:
        """Signal it, also without its server. Raises ProcessLookupError once it has ended."""
        signal.pidfd_send_signal(self._process, number)

    def kill(self) -> None:
        """End it at once."""
        with suppress(ProcessLookupError):
            self.signal(signal.SIGKILL)

    def close(self) -> None:
        self._exits.close()
        os.close(self._process)


def _identities(policy: ConfinementPolicy) -> dict[str, tuple[int, int] | None]:
    """Return device and inode of each path of a policy; None: nothing is there."""
    standing: dict[str, tuple[int, int] | None] = {}
    for path in (*policy.read, *policy.write):
        try:
            status = Path(path).stat()
        except OSError:
            standing[path] = None
        else:
            standing[path] = status.st_dev, status.st_ino
    return standing


async def _readable(source: socket.socket) -> None:
    loop, number, turn = asyncio.get_running_loop(), source.fileno(), asyncio.Event()
    loop.add_reader(number, turn.set)
    try:
        await turn.wait()
    finally:
        loop.remove_reader(number)


def _end(control: socket.socket, process: subprocess.Popen[bytes]) -> None:
    control.close()
    process.kill()  # its workers end with it
    process.wait()
