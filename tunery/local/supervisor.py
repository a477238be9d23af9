"""Starts child processes, restarts them when they end, and stops them in order.

Children write to log files of their own instead of a pipe. They survive the end of the supervisor,
and the next one finds them by their process records.
"""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeAlias, assert_never

from tunery.local import ports, processes
from tunery.local.child import Child, LogText, TcpPort
from tunery.local.errors import LocalError, PortTaken
from tunery.local.events import Changed, Event, Notice, Phase
from tunery.local.forks import FORKS, ForkedService
from tunery.local.paths import DataDir
from tunery.local.ports import HOST
from tunery.runtime.backoff import Backoff
from tunery.runtime.tasks import KeptTask

BACKOFF: Final = Backoff(250, 15_000)
BACKOFF_RESET_MS: Final = 60_000  # a child that ran this long is restarted at once
STARTS_MAX: Final = 4  # starts before a child that was never ready is given up
KILL_MS_MAX: Final = 5_000
POLL_MS: Final = 20
LOG_BYTES_MAX: Final = 16 * 1024 * 1024
LOG_TAIL_BYTES: Final = 2_000
EXPLAIN_MS: Final = 10_000  # after which a start that takes long is explained, again and again
PORT_TAKEN: Final = b"ddress already in use"  # in every language
WARNINGS: Final = frozenset({"warning", "error", "critical"})


Process: TypeAlias = asyncio.subprocess.Process | ForkedService


@dataclass
class SupervisedChild:
    """A child and its present state. Once it is `released`, it is not restarted."""

    child: Child
    released: asyncio.Event = field(default_factory=asyncio.Event)
    phase: Phase = Phase.WAITING
    restarts: int = 0
    was_ready: bool = False
    process: Process | None = None
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    killed: bool = False  # by `Supervisor.kill`, and its end has not been seen yet
    failure: LocalError | None = None
    kept: KeptTask[None] | None = None
    since: float = field(default_factory=time.monotonic)


class Supervisor:
    """Owns the children of one data directory; `listen` gets every event at once."""

    def __init__(self, folders: DataDir, listen: Callable[[Event], None]) -> None:
        self._folders = folders
        self._listen = listen
        self._running: dict[str, SupervisedChild] = {}

    def clear_orphans(self, names_in_order: tuple[str, ...]) -> None:
        """End the processes that an earlier supervisor left alive."""
        for name in processes.stop_orphans(self._folders.run, names_in_order):
            self._listen(Notice(f"{name} of an earlier run was still alive and has been stopped"))

    async def start(self, children: Iterable[Child]) -> None:
        """Start the children at the same time and wait until all are ready.

        Raises the LocalError of the first one that was not ready after STARTS_MAX starts.
        """
        await self.await_all(self.begin(children))

    def begin(self, children: Iterable[Child]) -> list[SupervisedChild]:
        """Start the children at the same time, for `await_all`."""
        return [self._begin(child) for child in children]

    async def await_all(self, begun: Iterable[SupervisedChild]) -> None:
        """Wait until all are ready. Raises LocalError like `start`."""
        for running in begun:
            await self._await_ready(running)

    def _begin(self, child: Child) -> SupervisedChild:
        old = self._running.get(child.name)
        if old is not None and old.kept is not None and not old.kept.ended.done():
            raise ValueError(f"{child.name} is already running")
        running = SupervisedChild(child)
        self._running[child.name] = running
        running.kept = KeptTask(
            partial(self._keep, running), f"keep {child.name}", is_watched=False
        )
        return running

    async def _await_ready(self, running: SupervisedChild) -> None:
        assert running.kept is not None  # noqa: S101  # set by _begin
        ended = running.kept.ended
        waiting: asyncio.Task[Any] = asyncio.create_task(running.ready.wait())
        try:
            await asyncio.wait((waiting, ended), return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
        if ended.done():
            ended.result()  # raises our own errors
        if (failure := running.failure) is not None:
            raise failure

    async def _keep(self, running: SupervisedChild) -> None:
        """Run one child until it is released: start it, await its end, back off, repeat."""
        ends_in_a_row = failed_starts = 0
        while not running.released.is_set():
            began = time.monotonic()
            try:
                reason = await self._run_once(running)
            except LocalError as problem:  # another start would not help
                running.failure = problem
                self._report(running, Phase.FAILED, problem.what)
                return
            if running.released.is_set():
                break
            if running.ready.is_set() or running.killed:
                failed_starts = 0
            else:
                failed_starts += 1
                if failed_starts >= STARTS_MAX:
                    running.failure = self._give_up(running, reason)
                    return
            running.ready.clear()
            running.killed = False
            if (time.monotonic() - began) * 1000 > BACKOFF_RESET_MS:
                ends_in_a_row = 0
            ends_in_a_row += 1
            delay_s = BACKOFF.delay_ms(ends_in_a_row) / 1000
            running.restarts += 1
            self._report(running, Phase.RESTARTING, f"{reason}; starting again in {delay_s:g} s")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(running.released.wait(), delay_s)
        self._report(running, Phase.STOPPED)

    def _give_up(self, running: SupervisedChild, reason: str) -> LocalError:
        log = self._folders.log(running.child.name)
        problem = LocalError(
            f"{running.child.name} did not become ready in {STARTS_MAX} starts: {reason}\n"
            f"  last lines of {log}:\n{indent(tail(log))}",
            "read the log; `tunery doctor` names what is missing",
        )
        self._report(running, Phase.FAILED, reason)
        return problem

    async def _run_once(self, running: SupervisedChild) -> str:
        """Start the child and wait for its end; returns why it ended, for a person."""
        child = running.child
        if running.process is not None:
            return await self._outlive(running, running.process)
        running.since = time.monotonic()
        self._report(running, Phase.PREPARING)
        try:
            await asyncio.to_thread(child.prepare)
            if running.released.is_set():
                return "stopped before it started"
            log = self._folders.log(child.name)
            rotate(log)
            offset = log.stat().st_size if log.exists() else 0
            running.process = await self._spawn(child, log)
        except OSError as problem:
            return f"could not start: {problem}"
        self._report(running, Phase.STARTING)
        ended = asyncio.create_task(running.process.wait())
        reason = await self._see_ready(running, ended, log, offset)
        if reason and not ended.done():
            processes.send_group(running.process.pid, signal.SIGKILL)
        described = self._note_exit(running, await ended)
        if not running.ready.is_set() and PORT_TAKEN in written_since(log, offset):
            for name, port in child.ports.items():
                if not ports.is_free(port):
                    if not running.was_ready:  # its address is not published yet
                        raise PortTaken(name, port)
                    reason = f"port {port} of {name} is used by another program"
        return reason or described

    async def _outlive(self, running: SupervisedChild, process: Process) -> str:
        """Wait for the end of a child whose start was in a task that was cancelled by mistake."""
        if not running.ready.is_set():
            processes.send_group(process.pid, signal.SIGKILL)
        return self._note_exit(running, await process.wait())

    def _note_exit(self, running: SupervisedChild, code: int) -> str:
        (self._folders.run / f"{running.child.name}.pid").unlink(missing_ok=True)
        running.process = None
        return describe_exit(code)

    async def _spawn(self, child: Child, log: Path) -> Process:
        env = {**os.environ, **child.env}
        with log.open("ab") as out:
            forked = await FORKS.start(child, env, out.fileno())
            process = forked or await _execute(child, env, out)
        if entry := processes.record(child.name, process.pid):
            processes.write_record(self._folders.run, entry)
        if forked is not None:
            forked.begin()
        return process

    async def _see_ready(
        self, running: SupervisedChild, ended: "asyncio.Task[int]", log: Path, offset: int
    ) -> str:
        """Wait until the child is ready or has ended; returns why it must be killed, or nothing."""
        child = running.child
        explaining = KeptTask(
            partial(self._explain, child.name, log, offset),
            f"explain {child.name}",
            is_watched=False,
        )
        try:
            async with asyncio.timeout(child.ready_ms_max / 1000):
                while not await is_ready(child, log, offset):
                    if ended.done():
                        return ""
                    if child.ports and PORT_TAKEN in written_since(log, offset):
                        return "a port is used by another program"
                    await asyncio.sleep(POLL_MS / 1000)
                await child.settle()
        except TimeoutError:
            why = last_warning(log, offset)
            return f"not ready after {child.ready_ms_max / 1000:g} s{f': {why}' if why else ''}"
        except Exception as problem:  # of the database or bucket: restart the child
            return f"started, but then {type(problem).__name__}: {problem}"
        finally:
            await explaining.stop()
        if not running.killed:
            running.ready.set()
            running.was_ready = True
            self._report(running, Phase.READY)
        return ""

    async def _explain(self, name: str, log: Path, offset: int) -> None:
        """Say now and then why a child is not ready yet, in the words of its log."""
        waited_ms = 0
        while True:
            await asyncio.sleep(EXPLAIN_MS / 1000)
            waited_ms += EXPLAIN_MS
            why = last_warning(log, offset) or f"nothing in {log} says why"
            self._listen(Notice(f"{name} is not ready after {waited_ms / 1000:g} s: {why}"))

    async def stop(self, name: str) -> None:
        """Send the stop signal, wait `stop_ms_max`, then kill the process group. No restart."""
        running = self._running[name]
        running.released.set()
        running.ready.clear()
        if (process := running.process) is not None and process.returncode is None:
            self._report(running, Phase.STOPPING)
            send_tree(process.pid, signal.SIGCONT)
            processes.send(process.pid, running.child.stop_signal)
        if running.kept is None:
            return
        ended = running.kept.ended
        done, _ = await asyncio.wait({ended}, timeout=running.child.stop_ms_max / 1000)
        if not done:
            if (process := running.process) is not None:
                processes.send_group(process.pid, signal.SIGKILL)
                self._listen(Notice(f"{name} did not stop in time and was killed"))
            else:
                await running.kept.stop()
            await asyncio.wait({ended}, timeout=KILL_MS_MAX / 1000)
        if ended.done() and not ended.cancelled():
            ended.exception()  # retrieved: the reason was reported before

    async def drain(self, stages: Sequence[Sequence[str]]) -> None:
        """Stop one stage after the other; the children of a stage at the same time."""
        for stage in stages:
            await asyncio.gather(*(self.stop(name) for name in stage if name in self._running))

    async def restart(self, name: str) -> None:
        """Start a stopped child again and wait until it is ready."""
        await self.start([self._running[name].child])

    def kill(self, name: str, *, tree: bool = False, restart: bool = True) -> list[int]:
        """Send SIGKILL, with `tree` also to all processes below; returns their pids.

        From now on the child is not ready, however long the kernel takes to end it. Without
        `restart` it stays dead, like a machine that lost its power.
        """
        running = self._running[name]
        if not restart:
            running.released.set()
        if running.process is None:
            return []
        running.killed = True
        running.ready.clear()
        pids = [running.process.pid]
        if tree:
            pids += processes.descendants(running.process.pid)
        for pid in pids:
            processes.send(pid, signal.SIGKILL)
        return pids

    def pause(self, name: str) -> None:
        """Send SIGSTOP to a child and all processes below: alive but silent, like a machine
        that swaps.
        """
        self._signal_tree(name, signal.SIGSTOP, Phase.PAUSED)

    def resume(self, name: str) -> None:
        self._signal_tree(name, signal.SIGCONT, Phase.READY)

    def _signal_tree(self, name: str, number: signal.Signals, phase: Phase) -> None:
        running = self._running[name]
        if running.process is None:
            raise ValueError(f"{name} is not running")
        send_tree(running.process.pid, number)
        self._report(running, phase)

    async def await_ready(self, name: str) -> None:
        """Wait until a child that is being restarted is ready."""
        await self._await_ready(self._running[name])

    def trim_logs(self) -> None:
        """Copy each log above LOG_BYTES_MAX to `.1` and empty it; its writer keeps appending."""
        for name in self._running:
            log = self._folders.log(name)
            if log.exists() and log.stat().st_size > LOG_BYTES_MAX:
                shutil.copyfile(log, log.with_suffix(".log.1"))
                os.truncate(log, 0)

    def pid(self, name: str) -> int | None:
        process = self._running[name].process
        return None if process is None else process.pid

    def _report(self, running: SupervisedChild, phase: Phase, detail: str = "") -> None:
        running.phase = phase
        self._listen(
            Changed(
                name=running.child.name,
                phase=phase,
                detail=detail,
                pid=None if running.process is None else running.process.pid,
                restarts=running.restarts,
                elapsed_ms=round((time.monotonic() - running.since) * 1000),
                address=running.child.address,
            )
        )


async def _execute(
    child: Child, env: Mapping[str, str], out: BinaryIO
) -> asyncio.subprocess.Process:
    who = child.identity
    return await asyncio.create_subprocess_exec(
        *child.argv,
        cwd=child.cwd,
        env=env,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=out,
        stderr=asyncio.subprocess.STDOUT,
        user=None if who is None else who.uid,
        group=None if who is None else who.gid,
        extra_groups=None if who is None else [],
        start_new_session=True,  # so that Ctrl-C in the terminal reaches only us
    )


def send_tree(pid: int, number: signal.Signals) -> None:
    """Signal a process, then those below it, because a stopped process starts no new ones."""
    processes.send(pid, number)
    for below in processes.descendants(pid):
        processes.send(below, number)


async def is_ready(child: Child, log: Path, offset: int) -> bool:
    """True if the child is ready. offset: size of its log when this start began."""
    match child.ready:
        case LogText(texts=texts):
            written = written_since(log, offset)
            return any(text in written for text in texts)
        case TcpPort(port=port):
            try:
                _, writer = await asyncio.open_connection(HOST, port)
            except OSError:
                return False
            writer.close()
            return True
        case _:
            assert_never(child.ready)


def written_since(log: Path, offset: int) -> bytes:
    with log.open("rb") as file:
        file.seek(offset)
        return file.read(LOG_BYTES_MAX)


def last_warning(log: Path, offset: int) -> str:
    """The last warning or error of one of our services since `offset`; empty without one."""
    for line in reversed(written_since(log, offset).splitlines()):
        try:
            entry = json.loads(line)
        except ValueError:
            continue  # of a program that is not ours
        if isinstance(entry, dict) and entry.get("level") in WARNINGS:
            named = [str(entry[name]) for name in ("event", "server", "why") if entry.get(name)]
            return ": ".join(named)
    return ""


def describe_exit(code: int) -> str:
    if code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return f"ended with code {code}"


def rotate(log: Path) -> None:
    """Rename a log above LOG_BYTES_MAX to `.1`, so that a child has at most two files."""
    if log.exists() and log.stat().st_size > LOG_BYTES_MAX:
        log.replace(log.with_suffix(".log.1"))


def tail(log: Path) -> str:
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - LOG_TAIL_BYTES))
            return file.read().decode("utf-8", errors="replace").strip()
    except FileNotFoundError:
        return "(empty)"


def indent(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())
