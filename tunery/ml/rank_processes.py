"""The processes of a training's ranks: one parent starts, follows and ends them.

    python -m tunery.ml.rank_processes SPEC.json RANK FOLDER

They are plain processes of this machine, which meet through a file in a folder that is new for each
attempt, and talk over the loopback interface. torch's own launcher is not used: it restarts ranks,
which attempts and checkpoints do here, and its parent needs torch.

Each rank writes its events to a pipe. The parent passes on those of the first, and keeps failures.
A rank that ends badly ends the others: they lose their connection to it, and what has not left
after `GRACE_S` is killed. Then one `Failed` names the rank that began it.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Final, NoReturn, TypeAlias

from tunery.ml.events import EventWriter
from tunery.ml.imports import large_imports
from tunery.ml.inputs import read_train_spec
from tunery.ml.process import leave_out_quantising, run_to_end
from tunery.ml.stop import StopRequest
from tunery.work.codec import decode_event
from tunery.work.events import Failed, StepCompleted
from tunery.work.exits import ExitCode, WorkError

GRACE_S: Final = 5.0  # from when a rank has ended badly until the others are killed
POLL_S: Final = 0.1
STOPS: Final = frozenset({signal.SIGTERM, signal.SIGINT})
AS_ASKED: Final = frozenset({ExitCode.FINISHED, ExitCode.PREEMPTED})
# What other launchers tell their processes: libraries that see it join groups of their own.
OF_LAUNCHERS: Final = frozenset({"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"})
OF_LAUNCHERS_PREFIXES: Final = (
    *("MASTER_", "GROUP_", "ROLE_", "TORCHELASTIC_", "TORCH_NCCL_", "NCCL_", "GLOO_"),
    *("ACCELERATE_", "FSDP_", "DEEPSPEED_", "PMI_", "OMPI_", "SLURM_"),
)


@dataclass
class RankProcess:
    """A rank as its parent sees it.

    step: the last one that it completed in this attempt; 0: none
    failed: what it says of its end
    was_stuck: it did not end by itself, and was killed
    """

    number: int
    process: subprocess.Popen[bytes]
    step: int = 0
    failed: Failed | None = None
    was_stuck: bool = False

    @property
    def code(self) -> int:
        """Its exit code, or a signal's number below 0, once it has ended."""
        return int(self.process.returncode)


Said: TypeAlias = SimpleQueue[tuple[RankProcess, bytes | None]]


def run_ranks(path: Path, count: int, events: EventWriter, stop: Callable[[], bool]) -> ExitCode:
    """Train on a spec file with so many ranks. Raises WorkError naming the rank that failed.

    On a request to stop all ranks stop after the same step.
    """
    ranks: list[RankProcess] = []
    with TemporaryDirectory(prefix="ranks-") as folder:
        try:
            ranks.extend(RankProcess(at, _start(path, at, folder)) for at in range(count))
            return follow(ranks, events, stop)
        finally:
            for rank in ranks:
                rank.process.kill()
                rank.process.wait()


def environment_of_ranks(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of a rank: without what another launcher has said, and without devices."""
    kept = {
        name: value
        for name, value in environment.items()
        if name not in OF_LAUNCHERS and not name.startswith(OF_LAUNCHERS_PREFIXES)
    }
    return kept | {"GLOO_SOCKET_IFNAME": "lo", "CUDA_VISIBLE_DEVICES": ""}


def _start(path: Path, number: int, folder: str) -> subprocess.Popen[bytes]:
    """Start a rank. It has signals that ask it to stop blocked until it listens to them."""
    argv = [sys.executable, "-m", "tunery.ml.rank_processes", str(path), str(number), folder]
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
    try:
        return subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            env=environment_of_ranks(os.environ),
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def follow(ranks: Sequence[RankProcess], events: EventWriter, stop: Callable[[], bool]) -> ExitCode:
    """Follow all ranks to their end. Raises WorkError naming the one that failed."""
    said: Said = SimpleQueue()
    for rank in ranks:
        Thread(target=_read, args=(rank, said), daemon=True).start()
    running = list(ranks)
    must_tell, ends_s = True, None
    while running:
        if must_tell and stop():
            must_tell = False
            for rank in running:
                rank.process.terminate()
        if ends_s is not None and time.monotonic() >= ends_s:
            for rank in running:
                rank.was_stuck = True
                rank.process.kill()
        try:
            rank, line = said.get(timeout=POLL_S)
        except Empty:
            continue
        if line is not None:
            _take(rank, line, events)
            continue
        running.remove(rank)
        if rank.code not in AS_ASKED and ends_s is None:
            ends_s = time.monotonic() + GRACE_S
    if ranks[0].code in AS_ASKED:
        return ExitCode(ranks[0].code)
    raise failure_of(ranks)


def _read(rank: RankProcess, said: Said) -> None:
    """In a thread: all lines of a rank, then None once it has ended."""
    stream = rank.process.stdout
    for line in stream or ():
        said.put((rank, line))
    rank.process.wait()
    said.put((rank, None))


def _take(rank: RankProcess, line: bytes, events: EventWriter) -> None:
    """Pass on an event of the first rank; of the others, only their steps and failures matter."""
    if not line.endswith(b"\n"):  # it was killed while it wrote
        return
    event = decode_event(line)
    if isinstance(event, Failed):
        rank.failed = event
        return
    if isinstance(event, StepCompleted):
        rank.step = event.step
    if rank.number == 0:
        events.forward(line)


def failure_of(ranks: Sequence[RankProcess]) -> WorkError:
    """The failure of the rank that others ended because of.

    A rank that a signal killed comes before those that say what they failed with: it cannot say so,
    and may be the reason. One that did not end by itself may be why others waited too long.
    """
    by_itself = [rank for rank in ranks if not rank.was_stuck and rank.code not in AS_ASKED]
    killed = [rank for rank in by_itself if rank.code < 0]
    failed = [rank for rank in by_itself if rank.failed is not None]
    others = [rank for rank in by_itself if rank.code != ExitCode.RANK_LOST]
    stuck = [rank for rank in ranks if rank.was_stuck]
    rank = (killed or failed or others or stuck or list(ranks))[0]
    name = f"rank {rank.number} of {len(ranks)}"
    if rank.failed is not None and rank.code > 0:
        return WorkError(rank.failed.cause, f"{name}: {rank.failed.message}", rank.failed.advice)
    if rank.was_stuck:
        end = "did not answer"
    elif rank.code < 0:
        end = f"was killed by {signal.Signals(-rank.code).name}"
    else:
        end = f"left with exit code {rank.code}"
    text = f"{name} (process {rank.process.pid}) {end} after step {rank.step}; all ranks were ended"
    advice = "Run it again: it goes on from the last checkpoint. See whether memory ran out."
    return WorkError("platform", text, advice)


def train_rank(
    path: Path, events: EventWriter, stop: StopRequest, *, number: int, folder: Path
) -> ExitCode:
    """Be one rank of the training of a spec file. Raises WorkError when it cannot go on.

    folder: new and empty when the first rank started; all meet there
    """
    spec = read_train_spec(path)
    leave_out_quantising(spec.hyper.adaptation)
    with large_imports():
        from tunery.ml.fine_tuning import fine_tune
        from tunery.ml.ranks import RankLost, Ranks

    try:
        return fine_tune(spec, events, stop, Ranks.meet(number, spec.ranks, folder))
    except RankLost as lost:
        print(f"rank {number}: another rank is gone: {lost}", file=sys.stderr)
        return ExitCode.RANK_LOST


def main() -> NoReturn:
    """Run the rank that the arguments name. Its parent has lowered its priority."""
    stop = StopRequest()
    stop.listen()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
    spec, number, folder = sys.argv[1:]
    work = partial(train_rank, number=int(number), folder=Path(folder))
    run_to_end(work, Path(spec), stop)


if __name__ == "__main__":
    main()
