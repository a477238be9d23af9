"""A fork at work is like a process that was started for its lease, whoever dies."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from services.trainer.adapters.forks import WorkForks
from services.trainer.adapters.processes import MARK, ProcessGroup, ProcessGroups, Walls
from services.trainer.ports import NO_ACCESS, Access, WorkProcess
from tests.unit.services.trainer.adapters import toy_work
from tests.unit.services.trainer.adapters.test_processes import gone
from tunery.confinement.confined import Confinement, ConfineMode
from tunery.platform.lasting_forks import ENDED_MAX
from tunery.ranks.launching import VISIBLE, RankLayout
from tunery.work.exits import ExitCode

ENVIRONMENT: Final = {**os.environ, VISIBLE: ""}
WORK: Final = (sys.executable, "-m", "tunery.ml.score")


class Node:
    """A node's launcher, whose server has loaded `toy_work`."""

    def __init__(self, folder: Path, walls: Walls | None = None, **more: str) -> None:
        self.folder, mark = folder / "lease", str(folder)
        self.folder.mkdir()
        self.forks = WorkForks(
            ENVIRONMENT, folder / "forks", {MARK: mark, **more}, toy_work.__name__
        )
        self.groups = ProcessGroups(mark, walls, self.forks)

    @property
    def server(self) -> int:
        assert self.forks.server_pid is not None
        return self.forks.server_pid

    async def start(
        self,
        spec: str = "spec.json",
        environment: Mapping[str, str] = ENVIRONMENT,
        access: Access = NO_ACCESS,
    ) -> WorkProcess:
        return await self.groups.start((*WORK, spec), environment, self.folder, access)


@asynccontextmanager
async def node(folder: Path, walls: Walls | None = None, **more: str) -> AsyncIterator[Node]:
    running = Node(folder, walls, **more)
    yield running
    await running.groups.sweep()


def is_fork(process: WorkProcess) -> bool:
    assert isinstance(process, ProcessGroup)
    return not isinstance(process._process, asyncio.subprocess.Process)


async def said(process: WorkProcess) -> list[Any]:
    return [json.loads(line) async for line in process.lines()]


async def test_a_fork_works_in_the_folder_and_on_the_devices_of_its_lease(tmp_path: Path) -> None:
    async with node(tmp_path) as here:
        for devices in ("", "GPU-1"):
            process = await here.start(environment={**ENVIRONMENT, VISIBLE: devices})
            assert is_fork(process)
            assert await said(process) == [
                [process.pid, str(here.folder), "tunery.ml.score", devices]
            ]
            assert await process.wait() == 3
            assert process.error_tail().endswith("its last words")
            process.signal(signal.SIGTERM)  # one that is gone is no error


async def test_a_signal_reaches_a_fork_however_early_it_comes(tmp_path: Path) -> None:
    """Between its first moment and the one in which it leads a group."""
    async with node(tmp_path) as here:
        for _ in range(20):
            process = await here.start("waits")
            process.signal(signal.SIGKILL)
            assert await process.wait() == -signal.SIGKILL
            assert await gone(process.pid)


async def test_an_order_reaches_a_fork_and_one_that_has_died_says_nothing(tmp_path: Path) -> None:
    async with node(tmp_path) as here:
        words = (*WORK, "reads")
        process = await here.groups.start_one(words, ENVIRONMENT, here.folder, reads=True)
        assert is_fork(process)
        process.hand_over(b'"an order"\n')
        assert (await said(process))[-1] == "an order"
        assert await process.wait() == 3
        process = await here.groups.start_one(words, ENVIRONMENT, here.folder, reads=True)
        process.signal(signal.SIGKILL)
        assert await process.wait() == -signal.SIGKILL
        process.hand_over(b'"an order"\n')


async def test_what_a_fork_cannot_be_is_started_anew(tmp_path: Path) -> None:
    """Libraries read variables as they load."""
    async with node(tmp_path) as here:
        process = await here.start("none.json", {**ENVIRONMENT, "LANG": "C.of-another"})
        (failed,) = await said(process)
        assert "none.json" in failed["message"], "the program itself looked for its spec"
        assert await process.wait() == 64
        assert here.forks.server_pid is None, "and nothing was loaded for it"


@pytest.mark.parametrize("mode", ["require", "off"])
async def test_ranks_are_forks_that_reach_each_other_alone(
    mode: ConfineMode, folder_on_disk: Path
) -> None:
    async with node(folder_on_disk, Walls(Confinement(mode))) as here:
        ranks = await here.start("meets", access=Access(ranks=RankLayout(2, range(2))))
        assert [line async for line in ranks.lines()] == []
        assert await ranks.wait() == ExitCode.PREEMPTED
        said = (here.folder / "stderr.log").read_text().splitlines()
        own = ["own net", "own ipc", "own mnt"] if mode == "require" else []
        assert said == ["rank 0 met rank 1", *own]


async def test_a_server_that_dies_costs_its_forks_and_the_next_lease_loads_again(
    tmp_path: Path,
) -> None:
    async with node(tmp_path) as here:
        process = await here.start("waits")
        first = here.server
        os.kill(first, signal.SIGKILL)
        assert await process.wait() == -signal.SIGKILL
        assert await gone(process.pid)
        anew = await here.start("none.json")
        assert (is_fork(anew), len(await said(anew)), await anew.wait()) == (False, 1, 64)
        again = await here.start()
        assert (is_fork(again), len(await said(again)), await again.wait()) == (True, 1, 3)
        assert here.server != first


async def test_after_some_servers_that_cannot_load_work_starts_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with node(tmp_path, TOY_DIES="1") as here:
        for number in range(ENDED_MAX + 1):
            process = await here.start("none.json")
            assert (is_fork(process), len(await said(process)), await process.wait()) == (
                *(False, 1),
                64,
            ), number
        ended = [line for line in caplog.records if line.getMessage() == "forks.ended"]
        assert [vars(line)["fields"]["why"] for line in ended] == ["no library here"] * ENDED_MAX
        here.forks.prepare()
        assert here.forks.server_pid is None


async def test_a_folder_that_cannot_be_made_costs_the_fork_alone(tmp_path: Path) -> None:
    (tmp_path / "forks").write_text("a file in the way")
    async with node(tmp_path) as here:
        process = await here.start("none.json")
        assert (len(await said(process)), await process.wait()) == (1, 64)


async def test_a_sweep_ends_forks_and_their_server(tmp_path: Path) -> None:
    """Also those of an agent that was killed, by the mark of their node."""
    async with node(tmp_path) as here:
        process, server = await here.start("waits"), here.server
        assert await ProcessGroups(str(tmp_path)).sweep() >= 2
        assert await process.wait() == -signal.SIGKILL
        assert await gone(server)


async def test_security_h1_a_fork_may_do_what_its_lease_may(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("of another tenant")
    async with node(tmp_path, Walls(Confinement("require"))) as here:
        process = await here.start("escapes")
        assert is_fork(process)
        _, *tried = [line.decode().split() async for line in process.lines()]
        assert tried == [
            ["own", "done"],
            *([*name.split(), "PermissionError"] for name in ("another's", "passwords")),
            ["its", "server", "PermissionError"],
        ]
        assert await process.wait() == 3
