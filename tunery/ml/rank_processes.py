"""The ranks of a training on this machine: what starts them by itself, and what each one runs.

    python -m tunery.ml.rank_processes SPEC.json NUMBER MEMORY CONNECTION...

The node agent starts ranks itself. `run_ranks` is for a training that somebody starts with
`tunery.ml.train`. How ranks are joined, followed and ended is in `tunery.ranks`.
"""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, NoReturn

from tunery.ml.events import EventWriter
from tunery.ml.imports import large_imports
from tunery.ml.inputs import read_train_spec
from tunery.ml.process import NICENESS, leave_out_quantising, run_to_end
from tunery.ml.stop import StopRequest
from tunery.ranks.group import AGAIN, RankGroup
from tunery.ranks.joining import RANK_MODULE, VISIBLE, Descriptors, joined
from tunery.work.exits import ExitCode, WorkError

POLL_S: Final = 0.1
STOPS: Final = frozenset({signal.SIGTERM, signal.SIGINT})
# What other launchers tell their processes: libraries that see it join groups of their own.
OF_LAUNCHERS: Final = frozenset({"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"})
OF_LAUNCHERS_PREFIXES: Final = (
    *("MASTER_", "GROUP_", "ROLE_", "TORCHELASTIC_", "TORCH_NCCL_", "NCCL_", "GLOO_"),
    *("ACCELERATE_", "FSDP_", "DEEPSPEED_", "PMI_", "OMPI_", "SLURM_"),
)


class PlainProcess:
    """A rank that this process has started; its errors go where those of this process go."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    async def lines(self) -> AsyncIterator[bytes]:
        """Lines of its standard output."""
        stream = self._process.stdout
        while stream is not None and (line := await stream.readline()):
            yield line

    def signal(self, number: int) -> None:
        """Signal it; that it is gone is no error."""
        with suppress(ProcessLookupError):
            self._process.send_signal(number)

    async def wait(self) -> int:
        """Exit status, negative for a signal."""
        return await self._process.wait()

    def read_bytes(self) -> int:
        """Nobody asks."""
        return 0

    def error_tail(self) -> str:
        """It is where the errors of this process are."""
        return ""


def run_ranks(
    path: Path,
    count: int,
    devices: Sequence[str],
    events: EventWriter,
    stop: Callable[[], bool],
) -> ExitCode:
    """Train on a spec file with so many ranks. Raises WorkError naming a rank that was killed.

    On a request to stop all ranks stop after the same step.
    devices: one for each rank; empty: they compute on processors
    """
    return asyncio.run(_run_ranks(path, count, devices, events, stop))


async def _run_ranks(
    path: Path,
    count: int,
    devices: Sequence[str],
    events: EventWriter,
    stop: Callable[[], bool],
) -> ExitCode:
    ranks: list[PlainProcess] = []
    try:
        with joined(count) as descriptors:
            for number, own in enumerate(descriptors):
                environment = environment_of_rank(os.environ, devices[number] if devices else "")
                ranks.append(await _start(path, number, own, environment))
        return await follow(RankGroup(ranks, devices=devices), events, stop)
    finally:
        for rank in ranks:
            rank.signal(signal.SIGKILL)


def environment_of_rank(environment: Mapping[str, str], device: str) -> dict[str, str]:
    """The environment of a rank: without what another launcher has said, and with one device.

    device: its name; empty: the rank sees none
    """
    kept = {
        name: value
        for name, value in environment.items()
        if name not in OF_LAUNCHERS and not name.startswith(OF_LAUNCHERS_PREFIXES)
    }
    return kept | {VISIBLE: device}


async def _start(
    path: Path, number: int, descriptors: Descriptors, environment: Mapping[str, str]
) -> PlainProcess:
    """Start a rank. It has signals that ask it to stop blocked until it listens to them."""
    argv = (sys.executable, "-m", RANK_MODULE, str(path), str(number), *map(str, descriptors))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            env=environment,
            pass_fds=descriptors,
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return PlainProcess(process)


async def follow(group: RankGroup, events: EventWriter, stop: Callable[[], bool]) -> ExitCode:
    """Pass on what the ranks say, to their end. Raises WorkError naming one that was killed."""

    async def pass_on() -> None:
        async for line in group.lines():
            events.forward(line)

    passing, must_tell = asyncio.create_task(pass_on()), True
    while not passing.done():
        if must_tell and stop():
            must_tell = False
            group.signal(signal.SIGTERM)
        await asyncio.wait({passing}, timeout=POLL_S)
    passing.result()
    status = await group.wait()
    if status < 0:
        end = group.error_tail().strip()
        raise WorkError("platform", end, f"{AGAIN} See whether memory ran out.")
    return ExitCode(status)


def train_rank(
    path: Path, events: EventWriter, stop: StopRequest, *, number: int, descriptors: Descriptors
) -> ExitCode:
    """Be one rank of the training of a spec file. Raises WorkError when it cannot go on."""
    spec = read_train_spec(path)
    leave_out_quantising(spec.hyper.adaptation)
    with large_imports():
        from tunery.ml.exchange import Exchange, RankLost
        from tunery.ml.fine_tuning import fine_tune
        from tunery.ml.ranks import Ranks

    try:
        return fine_tune(spec, events, stop, Ranks(Exchange(number, spec.ranks, descriptors)))
    except RankLost as lost:
        print(f"rank {number}: another rank is gone: {lost}", file=sys.stderr)
        return ExitCode.RANK_LOST


def main() -> NoReturn:
    """Run the rank that the arguments name."""
    stop = StopRequest()
    os.nice(NICENESS)
    stop.listen()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
    spec, number, *descriptors = sys.argv[1:]
    work = partial(train_rank, number=int(number), descriptors=tuple(map(int, descriptors)))
    run_to_end(work, Path(spec), stop)


if __name__ == "__main__":
    main()
