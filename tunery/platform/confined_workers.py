"""ConfinedWorkers: each piece of work on tenants' bytes has its own confined process.

A fork server makes them: a fork takes milliseconds, where an interpreter that loads libraries takes
half a second of processor time. Where there is none, or it lacks a right that a worker needs, the
worker is a program that starts anew. Both do the same with the same rights.
"""

import asyncio
import logging
import os
import re
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Protocol

from schemas.units import Ms
from tunery.confinement.confined import Confinement
from tunery.confinement.forking import ONE_THREAD, ForkServer
from tunery.confinement.policy import ConfinementPolicy, with_links
from tunery.runtime.telemetry.logs import log_event

# Rests between a tenant's pieces of work, while others have work.
#
# Priority alone does not keep work out of the way of others: two threads of one core, caches and
# memory are shared whatever their priority. So work that stands back also rests.

WHOLE_RESTS: Final = 5  # niceness for which work rests as long as it ran; for 15, nine times
OTHERS_S: Final = 10.0  # for which others count as having work after their last one
REST_S_MAX: Final = 15.0  # who rests may hold a place for which others wait
POLL_S: Final = 0.5  # whether others still have work


class Rests:
    """When each tenant may begin its next piece of work.

    resting_max: pieces of work that rest at a time, of all tenants; more begin at once. None: any.
    now_s: a clock that never goes back
    """

    def __init__(
        self, now_s: Callable[[], float] = time.monotonic, resting_max: int | None = None
    ) -> None:
        self._now_s, self._resting_max = now_s, resting_max
        self._resting = 0
        self._working = Counter[str]()
        self._ended_s: dict[str, float] = {}
        self._until_s: dict[str, float] = {}

    async def wait(self, tenant: str) -> None:
        """Return when the tenant may begin: its pause is over, or no other tenant has work."""
        if self._resting_max is not None and self._resting >= self._resting_max:
            return
        self._resting += 1
        try:
            while (left_s := self.due_s(tenant)) > 0:  # noqa: ASYNC110  # time passes
                await asyncio.sleep(min(left_s, POLL_S))
        finally:
            self._resting -= 1

    def due_s(self, tenant: str) -> float:
        """Seconds that it has to rest from now on."""
        now_s = self._now_s()
        for name, ended_s in [*self._ended_s.items()]:
            if ended_s + max(OTHERS_S, REST_S_MAX) < now_s:
                del self._ended_s[name]
                self._until_s.pop(name, None)
        is_alone = not any(count for name, count in self._working.items() if name != tenant)
        if is_alone and not any(
            now_s < ended_s + OTHERS_S for name, ended_s in self._ended_s.items() if name != tenant
        ):
            return 0.0
        return max(0.0, self._until_s.get(tenant, 0.0) - now_s)

    @contextmanager
    def working(self, tenant: str, niceness: int) -> Iterator[None]:
        """A piece of work of a tenant, whose rest is added at its end."""
        begun_s = self._now_s()
        self._working[tenant] += 1
        try:
            yield
        finally:
            self._working[tenant] -= 1
            if not self._working[tenant]:
                del self._working[tenant]
            now_s = self._now_s()
            rest_s = (now_s - begun_s) * (niceness / WHOLE_RESTS) ** 2
            until_s = max(now_s, self._until_s.get(tenant, 0.0)) + rest_s
            self._until_s[tenant] = min(until_s, now_s + REST_S_MAX)
            self._ended_s[tenant] = now_s


LOG: Final = logging.getLogger("tunery.workers")
KILL_MS_MAX: Final[Ms] = 5_000  # for a killed process to end
ERROR_BYTES_MAX: Final = 10_000
ANSWER_BYTES_MAX: Final = 64 * 1024**2
INPUT_BYTES_MAX: Final = 64 * 1024  # as much as an empty pipe takes at once
CHUNK_BYTES: Final = 64 * 1024
FOLDERS_MAX: Final = 4  # that stay warm, unless one piece of work has more
RETRY_S: Final = 60.0  # after a fork server that did not start
#: the name of an exception, after the lines of its traceback
EXCEPTION: Final = re.compile(r"^(?!Traceback)([A-Za-z_][A-Za-z0-9_.]{0,99})(?=:|$)", re.MULTILINE)
FRAME: Final = re.compile(r'^  File "([^"\n]+)", line (\d+)', re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Work:
    """One piece of work."""

    arguments: Sequence[str] = ()  # arguments of `run` of the worker's module
    folders: Sequence[str] = ()  # folders of base models that it reads; they stay warm
    policy: ConfinementPolicy  # what the worker may do; the folders are added
    tenant: str = ""  # whose it is
    niceness: int  # how far it stands back behind other processes, 0 to 19; see also `resting`
    niceness_min: int = 0  # lowest nice value of the process, for every tenant
    ms_max: Ms  # for all of it
    # variables besides those of all workers
    environment: Mapping[str, str] = field(default_factory=dict)
    # its standard input; None: it stays open, and is closed when this process ends
    stdin: bytes | None = None

    @property
    def process_niceness(self) -> int:
        return max(self.niceness, self.niceness_min)


@dataclass(frozen=True)
class WorkResult:
    """How a worker ended: its exit code, negative for a signal, and what it wrote."""

    code: int
    answer: bytes
    errors: str

    def describe(self) -> str:
        """The first exception by name and line, without its text, which may quote a row.

        Later exceptions may follow from the first one, as when no memory is left to clean up.
        """
        killed = self.code < 0
        ending = f"was killed by signal {-self.code}" if killed else f"exited with code {self.code}"
        exception = EXCEPTION.search(self.errors)
        frames = FRAME.findall(self.errors, 0, exception.start() if exception else 0)
        name = exception[1] if exception else "it reported no exception"
        where = f" at {Path(frames[-1][0]).name}:{frames[-1][1]}" if exception and frames else ""
        return f"the worker {ending}: {name}{where}"


class ConfinedWorkers:
    """Runs pieces of work of one module, which has `warm(folder)` and `run(*arguments)`.

    read, write: folders below which all workers together read and write
    environment: environment of all workers; without settings, which have passwords
    memory_bytes_max: memory of a fork server; its workers cannot have more
    forks: whether there is a fork server
    resting_max: pieces of work that rest at a time, where each holds a place of others
    """

    def __init__(
        self,
        module: str,
        *,
        confinement: Confinement,
        environment: Mapping[str, str],
        read: Sequence[str] = (),
        write: Sequence[str] = (),
        memory_bytes_max: int | None = None,
        forks: bool = True,
        resting_max: int | None = None,
    ) -> None:
        self._module, self._confinement = module, confinement
        self._environment = {**environment, **ONE_THREAD}
        self._read, self._write, self._forks = read, write, forks
        self._memory_bytes_max = memory_bytes_max
        self._server: ForkServer | None = None
        self._held = Counter[ForkServer]()  # their workers that run
        self._not_before_s = 0.0
        self._rests = Rests(resting_max=resting_max)

    @property
    def server_pid(self) -> int | None:
        """The process id of the fork server that gets the next piece of work."""
        return None if self._server is None else self._server.pid

    async def run(self, work: Work) -> WorkResult:
        """Do a piece of work, when its tenant has rested.

        Raises TimeoutError, OSError, ValueError.
        """
        await self.rest(work.tenant)
        with self._rests.working(work.tenant, work.niceness):
            return await self._run(work)

    async def rest(self, tenant: str) -> None:
        """Wait as long as `run` would, before the caller takes another limited place."""
        await self._rests.wait(tenant)

    async def _run(self, work: Work) -> WorkResult:
        async with (
            _opened(work.stdin) as pipes,
            asyncio.timeout(work.ms_max / 1_000),
            self._started(work, pipes) as worker,
        ):
            errors, answer = await asyncio.gather(
                _read(pipes.errors, ERROR_BYTES_MAX), _read(pipes.answer, ANSWER_BYTES_MAX)
            )
            return WorkResult(await worker.wait(), answer, errors.decode("utf-8", "replace"))

    def close(self) -> None:
        """End the fork servers, and with them their workers."""
        for server in (self._server, *self._held):
            if server is not None:
                server.close()
        self._server = None

    @asynccontextmanager
    async def _started(self, work: Work, pipes: "_Pipes") -> AsyncIterator["_Worker"]:
        """A worker, which has ended at the end of the context."""
        linked = with_links(map(Path, work.folders))
        policy = replace(work.policy, read=(*work.policy.read, *linked))
        async with AsyncExitStack() as stack:
            worker = await self._fork(work, policy, pipes, stack)
            worker = worker or await self._execute(work, policy, pipes)
            pipes.close_theirs()
            try:
                yield worker
            finally:
                worker.kill()
                with suppress(TimeoutError):  # one that the kernel holds ends later
                    await asyncio.wait_for(worker.wait(), KILL_MS_MAX / 1_000)
                worker.close()

    async def _execute(self, work: Work, policy: ConfinementPolicy, pipes: "_Pipes") -> "_Worker":
        argv = (sys.executable, "-m", self._module, *work.arguments)
        process = await asyncio.create_subprocess_exec(
            *("nice", "-n", str(work.process_niceness)),
            *self._confinement.command(argv, policy),
            stdin=pipes.theirs[0],
            stdout=pipes.theirs[1],
            stderr=pipes.theirs[2],
            env={**self._environment, **work.environment},
        )
        return _Executed(process)

    async def _fork(
        self, work: Work, policy: ConfinementPolicy, pipes: "_Pipes", stack: AsyncExitStack
    ) -> "_Worker | None":
        """A worker of the fork server; None where one has to start anew."""
        if not self._forks or time.monotonic() < self._not_before_s:
            return None
        task = {
            "arguments": work.arguments,
            "environment": work.environment,
            "niceness": work.process_niceness,
            "rights": self._confinement.rights(policy),
        }
        for _ in range(2):  # the server may have ended since its last worker
            server = self._server_for(work, policy)
            if server is None:
                return None
            with ExitStack() as held:
                held.enter_context(self._holding(server))
                if (worker := await server.start(task, pipes.theirs)) is not None:
                    stack.push(held.pop_all())
                    return worker
            if self._server is server:
                self._server = None
                server.close()
        self._not_before_s = time.monotonic() + RETRY_S
        log_event(LOG, logging.WARNING, "workers.not_forked", module=self._module)
        return None

    def _server_for(self, work: Work, policy: ConfinementPolicy) -> ForkServer | None:
        """The fork server, which has the folders of a piece of work warm; started if need be.

        A new one is started where files were replaced, to which the old one has no right.
        """
        before = self._server
        if before is not None and before.has(work.folders, policy):
            return before
        others = () if before is None else before.folders
        folders = tuple(dict.fromkeys((*work.folders, *others)))
        folders = folders[: max(FOLDERS_MAX, len(work.folders))]
        shared = ConfinementPolicy(
            read=(*self._read, *with_links(map(Path, folders))),
            write=tuple(self._write),
            processes=True,
            memory_bytes_max=self._memory_bytes_max,
        )
        if not shared.covers(policy):
            return None
        try:
            server = ForkServer(self._module, folders, shared, self._confinement, self._environment)
        except OSError:
            return None
        self._server = server
        if before is not None and not self._held[before]:
            before.close()
        return server

    @contextmanager
    def _holding(self, server: ForkServer) -> Iterator[None]:
        """Keep a server until its worker has ended, though another one has taken its place."""
        self._held[server] += 1
        try:
            yield
        finally:
            self._held[server] -= 1
            if not self._held[server]:
                del self._held[server]
                if server is not self._server:
                    server.close()


class _Worker(Protocol):
    async def wait(self) -> int: ...
    def kill(self) -> None: ...
    def close(self) -> None: ...


class _Executed:
    """A worker that is its own program."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def wait(self) -> int:
        return await self._process.wait()

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()

    def close(self) -> None:
        return


@dataclass(frozen=True)
class _Pipes:
    """The pipes of a worker: descriptors for it, and what it writes."""

    theirs: tuple[int, int, int]
    answer: asyncio.StreamReader
    errors: asyncio.StreamReader
    closing: ExitStack

    def close_theirs(self) -> None:
        self.closing.close()


@asynccontextmanager
async def _opened(stdin: bytes | None) -> AsyncIterator[_Pipes]:
    """Raises OSError, ValueError."""
    if stdin is not None and len(stdin) > INPUT_BYTES_MAX:
        raise ValueError(f"a worker gets at most {INPUT_BYTES_MAX} bytes as its input")
    with ExitStack() as ours, ExitStack() as theirs:
        pairs = [os.pipe() for _ in range(3)]
        (theirs_in, in_), (out, theirs_out), (err, theirs_err) = pairs
        for descriptor in (theirs_in, theirs_out, theirs_err):
            theirs.callback(os.close, descriptor)
        if stdin is None:
            ours.callback(os.close, in_)
        else:
            os.write(in_, stdin)
            os.close(in_)
        answer, errors = await _reader(out, ours), await _reader(err, ours)
        yield _Pipes((theirs_in, theirs_out, theirs_err), answer, errors, theirs)


async def _reader(descriptor: int, closing: ExitStack) -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    pipe = os.fdopen(descriptor, "rb", buffering=0)  # the transport closes it
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), pipe
    )
    closing.callback(transport.close)
    return reader


async def _read(pipe: asyncio.StreamReader, bytes_max: int) -> bytes:
    """The last bytes of a pipe. All is read, so that the worker never waits for this."""
    kept = bytearray()
    while chunk := await pipe.read(CHUNK_BYTES):
        kept += chunk
        if len(kept) > 2 * bytes_max:
            del kept[:-bytes_max]
    return bytes(kept[-bytes_max:])
