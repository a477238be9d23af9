"""Runs the soak: servers, three owners, a client, rounds of faults, and then the checker."""

import asyncio
import os
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from schemas.streams import PARTITIONS
from tests.soak.checker import check
from tests.soak.diaries import Diaries, client_lines
from tests.soak.evidence import await_quiet, history_of
from tests.soak.failpoints import CLAIM_POINTS
from tests.soak.history import Partition, Problem, StreamPartition
from tests.soak.rounds import OWNERS, Round
from tests.stacks import sweep, temporary_data_dir
from tunery.local.child import Child, service
from tunery.local.stack import Stack, stack

ROOT: Final = Path(__file__).parents[2]
CLIENT: Final = "client"
PARTITION_IDS: Final = tuple(
    StreamPartition(s, p) for s in ("requests", "tally") for p in range(PARTITIONS)
)
SESSION_MS: Final = 3_000  # as in production
PAUSE_S: Final = 1.6 * SESSION_MS / 1_000
PROGRESS_S_MAX: Final = 180.0
REACHED_S_MAX: Final = 90.0
STOP_MS_MAX: Final = 60_000  # before it stops, the client waits for the last replies
POLL_S: Final = 0.02
STEADY_S: Final = 1.0


class Stuck(Exception):
    """The soak made no progress within a time limit."""


@dataclass
class Figures:
    """Counts and durations of the rounds, in milliseconds."""

    rounds: Counter[str] = field(default_factory=Counter)
    unreached: list[str] = field(default_factory=list)
    takeover_ms: list[int] = field(default_factory=list)
    handover_ms: list[int] = field(default_factory=list)
    paused: set[str] = field(default_factory=set)


class Soak:
    """The running processes. Every round ends when all partitions have decided something new."""

    def __init__(self, running: Stack, folder: Path, tell: Callable[[str], None]) -> None:
        self._stack, self._folder, self._tell = running, folder, tell
        self.diaries = Diaries(folder)
        self.figures = Figures()

    async def begin(self, rate: float, seed: int) -> None:
        owners = [self._child(name, "owner") for name in OWNERS]
        client = self._child(CLIENT, "client", SOAK_RATE=str(rate), SOAK_SEED=str(seed))
        self._stack.services += [*OWNERS, CLIENT]
        await self._stack.supervisor.start(owners)
        await self._stack.supervisor.start([client])
        await self._await_progress(time.monotonic_ns())

    def _child(self, name: str, module: str, **env: str) -> Child:
        """Start a process of the soak without waiting until it is ready."""
        env |= {"PYTHONPATH": str(ROOT), "SOAK_FOLDER": str(self._folder), "SOAK_NAME": name}
        argv = (sys.executable, "-m", f"tests.soak.{module}")
        child = service(name, argv, self._stack.folders.root, {**self._stack.env, **env})
        return replace(child, stop_ms_max=STOP_MS_MAX)

    async def play(self, round_: Round) -> None:
        """Raises Stuck."""
        self._tell(f"{round_.name} ({round_.victim})")
        self.figures.rounds[round_.name] += 1
        match round_.kind:
            case "kill":
                await self._lose(round_.victim, self._kill, self.figures.takeover_ms)
            case "terminate":
                await self._lose(round_.victim, self._stack.stop, self.figures.handover_ms)
            case "pause":
                os.kill(self._pid(round_.victim), signal.SIGSTOP)
                await self._resume_after_takeover(round_.victim)
            case "zombie":
                if await self._arm_failpoint(round_.victim, "stop append.before", self._is_stopped):
                    await self._resume_after_takeover(round_.victim)
            case "failpoint":
                await self._fail(round_)
            case "broker":
                await self._kill("kafka")
                await self._stack.start("kafka")
            case "database":
                await self._kill("postgres")
                await self._stack.start("postgres")
            case "restart":
                await self._stack.stop("postgres")
                await self._stack.start("postgres")
        await self._await_progress(time.monotonic_ns())

    def _pid(self, name: str) -> int:
        pid = self._stack.supervisor.pid(name)
        if pid is None:
            raise Stuck(f"{name} is not running")
        return pid

    async def _kill(self, name: str) -> None:
        self._stack.kill(name, restart=False)
        await self._stack.stop(name)

    async def _lose(self, name: str, lose: Callable[[str], Any], times_ms: list[int]) -> None:
        """Measure, for each partition it owned, the time without a decision; then restart it."""
        self.diaries.refresh()
        owner = f"{name}.{self._pid(name)}"
        owned, t_ns = self.diaries.owned_by(owner), time.monotonic_ns()
        losing = asyncio.ensure_future(lose(name))
        await self._await_progress(t_ns, owned, owner)
        await losing
        for partition_id in owned:
            first_ns = self.diaries.first_after(partition_id, t_ns, owner)
            times_ms.append((first_ns - t_ns) // 1_000_000 if first_ns else -1)
        await self._stack.start(name)

    async def _fail(self, round_: Round) -> None:
        """Make an owner exit at a failpoint; for one of a claim another owner must be killed."""
        name, others = round_.victim, [name for name in OWNERS if name != round_.victim]
        lost = others[:1] if round_.point in CLAIM_POINTS else []

        def is_gone(pid: int) -> bool:
            return self._stack.supervisor.pid(name) != pid

        if await self._arm_failpoint(name, f"exit {round_.point}", is_gone, lost):
            await self._stack.stop(name)
            await self._stack.start(name)
        for other in lost:
            await self._stack.start(other)

    async def _arm_failpoint(
        self, name: str, order: str, is_done: Callable[[int], bool], lost: Sequence[str] = ()
    ) -> bool:
        """Arm a failpoint and wait until it has acted; False when it is not reached in time.

        `lost`: owners that are killed once it is armed.
        """
        pid, file = self._pid(name), self._folder / f"{name}.armed"
        part = file.with_suffix(".part")
        part.write_text(order, encoding="ascii")
        part.replace(file)
        for other in lost:
            await self._kill(other)
        deadline = time.monotonic() + REACHED_S_MAX
        while not is_done(pid):
            await asyncio.sleep(POLL_S)
            if time.monotonic() > deadline:
                file.unlink(missing_ok=True)
                self.figures.unreached.append(order)
                return False
        return True

    def _is_stopped(self, pid: int) -> bool:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
        return state == "T"

    async def _resume_after_takeover(self, name: str) -> None:
        """Leave a stopped process stopped until others own all its partitions, then resume it."""
        pid, t_ns = self._pid(name), time.monotonic_ns()
        self.figures.paused.add(str(pid))
        self.diaries.refresh()
        owner = f"{name}.{pid}"
        await asyncio.sleep(PAUSE_S)
        await self._await_progress(t_ns, self.diaries.owned_by(owner), owner)
        os.kill(pid, signal.SIGCONT)

    async def _await_progress(
        self, t_ns: int, partition_ids: Iterable[StreamPartition] = PARTITION_IDS, not_by: str = ""
    ) -> None:
        """Wait until each partition has a decision later than `t_ns`. Raises Stuck."""
        waiting = set(partition_ids)
        try:
            async with asyncio.timeout(PROGRESS_S_MAX):
                while True:
                    self.diaries.refresh()
                    waiting = {
                        partition_id
                        for partition_id in waiting
                        if self.diaries.first_after(partition_id, t_ns, not_by) is None
                    }
                    if not waiting:
                        return
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            names = ", ".join(map(str, sorted(waiting)))
            raise Stuck(f"no decision in {PROGRESS_S_MAX:g} s at {names}") from None

    async def end(self) -> None:
        """Wait until all needs have ended and rows are up to date, then stop all processes."""
        await self._stack.stop(CLIENT)
        if not await await_quiet(self._stack):
            raise Stuck("the read models did not reach the ends of the journals")
        await asyncio.gather(*(self._stack.stop(name) for name in OWNERS))
        self.diaries.refresh()


async def soak(
    rounds: Sequence[Round],
    seed: int,
    rate: float,
    tell: Callable[[str], None],
    keep: Path | None = None,
) -> dict[str, Any]:
    """Run the rounds and check the result; returns figures for JSON. seed: of the client."""
    begun, problems = time.monotonic(), list[Problem]()
    sweep()
    with temporary_data_dir() as data:
        async with stack(data, environ={}) as running:
            folder = keep or data / "soak"
            folder.mkdir(exist_ok=True)
            running_soak = Soak(running, folder, tell)
            try:
                await running_soak.begin(rate, seed)
                for round_ in rounds:
                    await running_soak.play(round_)
                await asyncio.sleep(STEADY_S)
                await running_soak.end()
            except Stuck as stuck:
                problems.append(Problem("stuck", "the soak", str(stuck)))
                running_soak.diaries.refresh()
            tell("checking")
            history = await history_of(running, running_soak.diaries.lines, client_lines(folder))
            problems += critical_log_lines(running)
            if keep is not None:
                shutil.copytree(running.folders.logs, keep / "logs", dirs_exist_ok=True)
        verdict = check(history)
    problems += verdict.problems
    return report(running_soak.figures, verdict.partitions, problems, history.client) | {
        "seed": seed,
        "load_average": round(
            os.getloadavg()[1], 1
        ),  # of five minutes: others use the machine, too
        "seconds": round(time.monotonic() - begun),
    }


def critical_log_lines(running: Stack) -> list[Problem]:
    """Critical lines of the owners' logs: partitions or hosts that stopped for good."""
    return [
        Problem("divergent", name, line[:500])
        for name in OWNERS
        for line in running.folders.log(name).read_text(encoding="utf-8").splitlines()
        if '"level":"critical"' in line
    ]


def report(
    figures: Figures,
    partitions: Sequence[Partition],
    problems: Sequence[Problem],
    client: Sequence[Any],
) -> dict[str, Any]:
    void = [(why, owner) for partition in partitions for _, why, owner in partition.void]
    stale = sum(owner.rpartition(":")[2] in figures.paused for why, owner in void if why == "epoch")
    said = Counter(line["what"] for line in client)
    return {
        "rounds": sum(figures.rounds.values()),
        "by_kind": dict(sorted(figures.rounds.items())),
        "unreached": figures.unreached,
        "commands_sent": said["send"],
        "commands_acknowledged": said["ack"],
        "replies": said["reply"],
        "accepted": sum(len(partition.entries) for partition in partitions),
        "claims": sum(len(partition.owners) for partition in partitions),
        "void": dict(Counter(why for why, _ in void)),
        "stale_by_zombies": stale,
        "takeover_ms": spread(figures.takeover_ms),
        "handover_ms": spread(figures.handover_ms),
        "session_timeout_ms": SESSION_MS,
        "problems": [asdict(partition) for partition in problems[:50]],
        "problems_count": len(problems),
    }


def spread(times_ms: Sequence[int]) -> dict[str, int]:
    """Median, 99th percentile (nearest rank) and maximum; empty when nothing was measured."""
    if not times_ms:
        return {}
    ordered = sorted(times_ms)

    def rank(percent: int) -> int:
        return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]

    return {"n": len(ordered), "p50": rank(50), "p99": rank(99), "max": ordered[-1]}


def say(text: str) -> None:
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {text}\n")
