"""The ranks of a training as one process: their parent follows and ends them.

Each rank writes its events to its standard output. Those of the first are passed on; of the others,
failures and steps matter. A rank that ends badly ends the others: their connection to it ends, and
what has not left after `GRACE_S` is killed. Then the rank that began it is named. Where others are
on other machines, ranks that have only lost another one leave that to these: the group ends with
`RANK_LOST`.

Each rank also writes heartbeats from its own thread (`tunery.ml.beats`). One that is silent
stands still, and ends the others likewise. Where all write them and none moves, they wait for each
other: the one that is behind is named.
"""

import asyncio
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol

import msgspec
from msgspec.structs import replace

from tunery.work.codec import decode_event, encode_event
from tunery.work.events import AnyWorkEvent, Failed, RankBeat, StepCompleted
from tunery.work.exits import EXIT_OF_CAUSE, ExitCode

GRACE_S: Final = 5.0  # from when a rank has ended badly until the others are killed
SILENT_S_MAX: Final = 120.0  # without a heartbeat: loading a library may keep all threads waiting
STILL_S_MAX: Final = 780.0  # in which no rank moves; below the pool's limit for silent leases
WATCH_S: Final = 1.0
WAITING_MAX: Final = 3  # ranks whose collectives are named
AS_ASKED: Final = frozenset({ExitCode.FINISHED, ExitCode.PREEMPTED})
AGAIN: Final = "Run it again: it goes on from the last checkpoint."


class RankProcess(Protocol):
    """A started process, as its parent sees it."""

    @property
    def pid(self) -> int: ...

    def lines(self) -> AsyncIterator[bytes]: ...

    def signal(self, number: int) -> None: ...

    async def wait(self) -> int: ...

    def read_bytes(self) -> int: ...

    def error_tail(self) -> str: ...


@dataclass
class Rank:
    """State of one rank."""

    number: int
    process: RankProcess
    device: str = ""  # name of its accelerator; empty: it has none
    step: int = 0  # last step that it completed in this attempt; 0: none
    beat: RankBeat | None = None  # place of its last sign of life
    # beat_s, moved_s: when that came, and when it reached that place, by the loop's clock
    beat_s: float = 0
    moved_s: float = 0
    failed: Failed | None = None  # its report of its failure
    was_stuck: bool = False  # it did not end by itself, and was killed
    status: int | None = None  # exit status; None: it runs

    @property
    def ended_badly(self) -> bool:
        """Return whether the rank failed without an order to end."""
        return self.status is not None and self.status not in AS_ASKED and not self.was_stuck

    @property
    def was_killed(self) -> bool:
        return self.ended_badly and self.status is not None and self.status < 0


class RankGroup:
    """Ranks of a training as one process: the events of the first, one signal, one end.

    processes: processes of this machine, in the order of their ranks
    first: number of the first one
    count: number of ranks on all machines; None: all are here
    devices: device of each rank; empty: they have none
    """

    def __init__(
        self,
        processes: Sequence[RankProcess],
        devices: Sequence[str] = (),
        *,
        first: int = 0,
        count: int | None = None,
    ) -> None:
        names = devices or [""] * len(processes)
        self._ranks = [
            Rank(number, process, name)
            for number, (process, name) in enumerate(zip(processes, names, strict=True), first)
        ]
        self._count = len(processes) if count is None else count
        self._elapsed_ms = 0
        self._grace: asyncio.TimerHandle | None = None
        self._hung = ""  # why they were all ended
        self._is_passing_on = False
        teller, *others = self._ranks
        self._ends = [asyncio.create_task(self._end(teller))]
        self._ends += [asyncio.create_task(self._follow(rank)) for rank in others]
        self._watching = asyncio.create_task(self._watch())

    @property
    def pid(self) -> int:
        """Process id of the first rank."""
        return self._ranks[0].process.pid

    def signal(self, number: int) -> None:
        """Signal all ranks; those that are gone are no error."""
        for rank in self._ranks:
            rank.process.signal(number)

    async def lines(self) -> AsyncIterator[bytes]:
        """Events of the first rank, then why the training failed, where a rank can say it.

        Ends once all ranks have ended.
        """
        first = self._ranks[0]
        async for line in first.process.lines():
            if self._note(first, line):
                self._is_passing_on = True
                yield line
                self._is_passing_on = False
                first.beat_s = first.moved_s = asyncio.get_running_loop().time()
        await asyncio.wait(self._ends)
        failed = self._failed()
        if failed is not None:
            yield encode_event(failed, self._elapsed_ms) + b"\n"

    async def wait(self) -> int:
        """Wait for all; return the exit status of the failure, or of the rank that ended first."""
        await asyncio.wait(self._ends)  # a caller that is cancelled may wait again
        first, failed = self._ranks[0], self._failed()
        if failed is not None:
            return EXIT_OF_CAUSE[failed.cause]
        cause = self._cause()
        if not self._ended_as_asked and self._was_left(cause):
            return ExitCode.RANK_LOST
        status = first.status if self._ended_as_asked else cause.status
        return ExitCode.PLATFORM if status is None else status

    def read_bytes(self) -> int:
        return sum(rank.process.read_bytes() for rank in self._ranks)

    def error_tail(self) -> str:
        """Return the error output of the rank that began the end, and which rank that is."""
        if self._ended_as_asked:
            return self._ranks[0].process.error_tail()
        rank = self._cause()
        return f"{rank.process.error_tail()}\n{self._end_of(rank)}"

    # --- while they run
    def _note(self, rank: Rank, line: bytes) -> bool:
        """Take what a rank says; whether it is passed on, where it is of the first."""
        if not line.endswith(b"\n"):  # it was killed while it wrote
            return False
        event: AnyWorkEvent = decode_event(line)
        self._elapsed_ms = max(self._elapsed_ms, event.elapsed_ms)
        if isinstance(event, Failed):
            rank.failed = event
            return False
        if isinstance(event, RankBeat):
            rank.beat_s = asyncio.get_running_loop().time()
            if rank.beat is None or event.moved != rank.beat.moved:
                rank.moved_s = rank.beat_s
            rank.beat, rank.step = event, max(rank.step, event.step - 1)
            return False
        if isinstance(event, StepCompleted):
            rank.step = event.step
        return True

    async def _watch(self) -> None:
        """End ranks that hang, until all have ended."""
        while (await asyncio.wait(self._ends, timeout=WATCH_S))[1]:
            if self._is_passing_on:  # what the first rank says waits to be read
                continue
            now = asyncio.get_running_loop().time()
            beating = [rank for rank in self._ranks if rank.beat and rank.status is None]
            silent = [rank for rank in beating if now - rank.beat_s > SILENT_S_MAX]
            if silent:
                self._end_hung(silent[0], f"stands still: silent for {SILENT_S_MAX:.0f} s")
            elif beating and all(now - rank.moved_s > STILL_S_MAX for rank in beating):
                behind = min(beating, key=lambda rank: rank.beat.moved if rank.beat else 0)
                self._end_hung(behind, f"is behind: no rank moved for {STILL_S_MAX:.0f} s")

    def _end_hung(self, rank: Rank, why: str) -> None:
        """Kill all, and name a rank for it."""
        beat = rank.beat
        assert beat is not None, "it beats"  # noqa: S101  # those that never did are not watched
        at = f"{beat.phase}, micro-batch {beat.micro_batch} of step {beat.step}"
        name = f"{self._name(rank)} (process {rank.process.pid})"
        waiting = [
            f"; rank {other.number} waits in {other.beat.collective}"
            for other in self._ranks
            if other.beat is not None and other.beat.collective
        ]
        waits = "".join(waiting[:WAITING_MAX])
        self._hung = f"{name} {why}, in {at}{waits}; all ranks were ended"
        rank.was_stuck = True
        self._kill_rest()

    async def _follow(self, rank: Rank) -> None:
        with suppress(msgspec.MsgspecError):  # what it says is no event: it is not read further
            async for line in rank.process.lines():
                self._note(rank, line)
        await self._end(rank)

    async def _end(self, rank: Rank) -> None:
        rank.status = await rank.process.wait()
        if rank.ended_badly and self._grace is None:
            self._grace = asyncio.get_running_loop().call_later(GRACE_S, self._kill_rest)

    def _kill_rest(self) -> None:
        for rank in self._ranks:
            if rank.status is None:
                rank.was_stuck = True
                rank.process.signal(signal.SIGKILL)

    # --- once they have ended
    @property
    def _ended_as_asked(self) -> bool:
        return self._ranks[0].status in AS_ASKED

    def _cause(self) -> Rank:
        """The rank that others ended because of.

        One that a signal killed comes before those that say what they failed with: it cannot say
        so, and may be the reason. One that did not end by itself may be why others waited too long.
        """
        badly = [rank for rank in self._ranks if rank.ended_badly]
        killed = [rank for rank in badly if rank.was_killed]
        failed = [rank for rank in badly if rank.failed is not None]
        others = [rank for rank in badly if rank.status != ExitCode.RANK_LOST]
        stuck = [rank for rank in self._ranks if rank.was_stuck]
        return (killed or failed or others or stuck or self._ranks)[0]

    def _was_left(self, cause: Rank) -> bool:
        """Return whether the loss of a rank on another machine ended the ranks here, as far as
        known.
        """
        is_part = self._count > len(self._ranks)
        return is_part and (cause.was_stuck or cause.status == ExitCode.RANK_LOST)

    def _failed(self) -> Failed | None:
        """Why they ended; None: as they were asked to, or a signal killed the one that began it."""
        if self._ended_as_asked:
            return None
        if self._hung:
            return Failed(cause="platform", message=self._hung, advice=AGAIN)
        rank = self._cause()
        if rank.was_killed or self._was_left(rank):
            return None
        if rank.failed is not None and not rank.was_stuck:
            message = f"{self._name(rank)}: {rank.failed.message}"
            return replace(rank.failed, message=message)
        return Failed(cause="platform", message=self._end_of(rank), advice=AGAIN)

    def _end_of(self, rank: Rank) -> str:
        if rank.was_stuck:
            end = "did not answer"
        elif rank.status is not None and rank.status < 0:
            end = f"was killed by {signal.Signals(-rank.status).name}"
        else:
            end = f"left with exit code {rank.status}"
        name = f"{self._name(rank)} (process {rank.process.pid})"
        return f"{name} {end} after step {rank.step}; all ranks were ended"

    def _name(self, rank: Rank) -> str:
        device = f" on {rank.device}" if rank.device else ""
        return f"rank {rank.number} of {self._count}{device}"
