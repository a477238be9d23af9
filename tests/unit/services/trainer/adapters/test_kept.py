"""A training that has finished is kept for the evaluation of its job, and for nothing else."""

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import Mapping
from errno import EACCES
from pathlib import Path
from typing import Any, Final

import pytest

from services.trainer.adapters import kept as kept_processes
from services.trainer.adapters.leased import LeaseProcesses
from services.trainer.adapters.processes import ProcessGroup, ProcessGroups, Walls, find_marked
from services.trainer.ports import Access, WorkProcess
from tunery.confinement.confined import Confinement
from tunery.ranks.launching import RankLayout

JOB: Final = "acme/ftjob-1"
OF_JOB: Final = Access(job=JOB)
# What `tunery.ml.train_and_score` does with its pipes, without the seconds of its imports.
TRAINS: Final = """
import json, os, pathlib, sys
pathlib.Path("out").mkdir(exist_ok=True)
pathlib.Path("out/adapter").write_text("weights")
print("trained", os.getpid(), flush=True)
sys.stderr.write("words of the training")
sys.stderr.flush()
{fails}
print("ended", flush=True)
line = sys.stdin.readline()
if not line:
    sys.exit(0)
{dies}
order = json.loads(line)
os.chdir(order["folder"])
print("begun", flush=True)
pathlib.Path("scores").write_text("of " + pathlib.Path("input").read_text())
{probes}
print("scored", os.getpid(), order["spec"], sorted(os.listdir(".")), flush=True)
sys.exit(3)
"""


class Node:
    """A node's launcher, whose trainings are `TRAINS`."""

    def __init__(self, folder: Path, slots: int = 1, walls: Walls | None = None) -> None:
        self.folder, self.mark = folder, str(folder)
        self.environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
        self.groups = ProcessGroups(self.mark, walls)
        self.launcher = LeaseProcesses(self.groups, folder / "kept", slots)

    @property
    def kept(self) -> int:
        return len(self.launcher._kept)

    async def start(
        self,
        what: str,
        environment: Mapping[str, str] | None = None,
        access: Access = OF_JOB,
    ) -> WorkProcess:
        """what: `train` or `score`"""
        folder = self.folder / what
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        (folder / "input").write_text(what)
        argv = (sys.executable, "-m", f"tunery.ml.{what}", "spec.json")
        return await self.launcher.start(argv, environment or self.environment, folder, access)

    async def trained(self, **changes: Any) -> WorkProcess:
        """A process whose training has finished."""
        process = await self.start("train", **changes)
        assert await said(process) == [f"trained {process.pid}\n".encode()]
        assert await process.wait() == 0
        return process

    async def scored(self, **changes: Any) -> tuple[int, int]:
        """The id of the process of an evaluation, and its status."""
        process = await self.start("score", **changes)
        await said(process)
        return process.pid, await process.wait()

    async def close(self) -> None:
        await self.launcher._kept.close()
        assert await ProcessGroups(self.mark).sweep() == 0


async def said(process: WorkProcess) -> list[bytes]:
    return [line async for line in process.lines()]


@pytest.fixture(autouse=True)
def trainings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start `TRAINS` where a training is started that goes on."""
    be_program(monkeypatch)


def be_program(
    patch: pytest.MonkeyPatch, fails: str = "", dies: str = "", probes: str = ""
) -> None:
    script = TRAINS.replace("{fails}", fails).replace("{dies}", dies).replace("{probes}", probes)
    start = ProcessGroups.start_one

    async def start_one(self: ProcessGroups, argv: Any, *rest: Any, **more: Any) -> ProcessGroup:
        if argv[2] == "tunery.ml.train_and_score":
            argv = (argv[0], "-c", script)
        return await start(self, argv, *rest, **more)

    patch.setattr(ProcessGroups, "start_one", start_one)


async def test_first_hour2_u14_the_training_goes_on_as_the_evaluation_of_its_job(
    tmp_path: Path,
) -> None:
    node = Node(tmp_path)
    process = await node.trained()
    left = tmp_path / "train"
    assert (left / "out" / "adapter").read_text() == "weights", "the agent stores it from there"
    shutil.rmtree(left)
    assert node.kept == 1
    evaluation = await node.start("score")
    entries = "['input', 'scores', 'stderr.log']"
    assert await said(evaluation) == [f"scored {process.pid} spec.json {entries}\n".encode()], (
        "nothing of the training's files is there"
    )
    assert (tmp_path / "score" / "scores").read_text() == "of score"
    assert await evaluation.wait() == 3
    assert evaluation.error_tail() == "", "what the training said is not the evaluation's"
    assert node.kept == 0
    await node.close()


@pytest.mark.parametrize(
    ("what", "changes"),
    [
        ("of another job", {"access": Access(job="acme/ftjob-2")}),
        ("of another tenant", {"access": Access(job="other/ftjob-1")}),
        ("that is of no job", {"access": Access()}),
        ("with other files", {"access": Access(job=JOB, read=(Path("/other"),))}),
        ("that writes elsewhere", {"access": Access(job=JOB, write=(Path("/other"),))}),
        ("of several ranks", {"access": Access(job=JOB, ranks=RankLayout(2, range(2)))}),
        ("on another device", {"environment": {**os.environ, "CUDA_VISIBLE_DEVICES": "GPU-2"}}),
    ],
)
async def test_first_hour2_u14_any_other_work_gets_a_process_of_its_own(
    what: str, changes: dict[str, Any], tmp_path: Path
) -> None:
    """And its slot: the process that is kept ends before."""
    node = Node(tmp_path)
    process = await node.trained()
    pid, status = await node.scored(**changes)
    assert (pid != process.pid, status != 3, node.kept) == (True, True, 0), what
    assert find_marked(node.mark) == set()
    await node.close()


async def test_first_hour2_u14_one_is_kept_beside_others_while_slots_are_free(
    tmp_path: Path,
) -> None:
    node = Node(tmp_path, slots=3)
    names = ("GPU-1", "GPU-2", "GPU-3")
    devices = [{**node.environment, "CUDA_VISIBLE_DEVICES": name} for name in names]
    first = await node.trained(environment=devices[0])
    second = await node.trained(environment=devices[1], access=Access(job="acme/ftjob-2"))
    assert node.kept == 2
    await node.scored(environment=devices[2], access=Access())
    assert node.kept == 2, "there was a free slot"
    await node.scored(environment=devices[0], access=Access())
    assert node.kept == 1, "the device was needed"
    assert find_marked(node.mark) == {second.pid}
    assert first.pid not in find_marked(node.mark)
    assert await node.scored(environment=devices[1], access=Access(job="acme/ftjob-2")) == (
        second.pid,
        3,
    )
    await node.close()


@pytest.mark.parametrize("when", ["before the order", "with the order"])
async def test_first_hour2_u14_a_process_that_dies_is_replaced_in_the_evaluations_lease(
    when: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if when == "with the order":
        monkeypatch.undo()
        be_program(monkeypatch, dies="os.kill(os.getpid(), 9)")
    node = Node(tmp_path)
    process = await node.trained()
    if when == "before the order":
        os.kill(process.pid, signal.SIGKILL)
    evaluation = await node.start("score")
    (failed,) = await said(evaluation)
    assert b"spec.json" in failed, "a fresh process looked for the spec"
    assert (evaluation.pid != process.pid, await evaluation.wait()) == (True, 64)
    await node.close()


async def test_first_hour2_u14_without_an_evaluation_it_ends_within_a_bound(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Also one that does not leave by itself: what it has read is the tenant's."""
    monkeypatch.setattr(kept_processes, "WAIT_S", 0.2)
    monkeypatch.setattr(kept_processes, "GRACE_S", 0.1)
    node = Node(tmp_path)
    process = await node.trained()
    assert find_marked(node.mark) == {process.pid}
    (kept,) = node.launcher._kept._of_jobs.values()
    await asyncio.wait_for(kept.end, 180)
    assert node.kept == 0
    assert find_marked(node.mark) == set()
    assert list((tmp_path / "kept").iterdir()) == []
    await node.close()


async def test_first_hour2_u14_a_training_that_gets_an_order_just_then_is_not_kept(
    tmp_path: Path,
) -> None:
    """Its job was cancelled or paused, or its node drains."""
    node = Node(tmp_path)
    process = await node.start("train")
    await said(process)
    process.signal(signal.SIGTERM)
    assert await process.wait() == 0, "it had finished"
    assert (node.kept, find_marked(node.mark)) == (0, set())
    await node.close()


@pytest.mark.parametrize("status", [70, 75])
async def test_first_hour2_u14_a_training_that_does_not_finish_is_not_kept(
    status: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.undo()
    be_program(monkeypatch, fails=f"sys.exit({status})")
    node = Node(tmp_path)
    process = await node.start("train")
    await said(process)
    assert (await process.wait(), node.kept) == (status, 0)
    await node.close()


async def test_first_hour2_u14_a_new_agent_ends_those_of_one_that_was_killed(
    tmp_path: Path,
) -> None:
    node = Node(tmp_path)
    process = await node.trained()
    again = Node(tmp_path)
    assert await again.launcher.sweep() == 1
    assert find_marked(node.mark) == set()
    assert not (tmp_path / "kept").exists()
    assert await again.scored() != (process.pid, 3)
    await again.close()


PROBES: Final = """
def refused(action):
    try:
        action()
    except OSError as error:
        return error.errno
    return 0
folder = pathlib.Path({folder!r})
print([refused(lambda: (folder / "train" / "out" / "adapter").read_text()),
       refused(lambda: (folder / "train" / "more").write_text("")),
       refused(lambda: (folder / "other").read_text()),
       refused(lambda: (folder / "base" / "more").write_text("")),
       refused(lambda: (folder / "base" / "weights").read_text())], flush=True)
"""


async def test_first_hour2_u14_the_confinement_of_the_training_holds_for_the_evaluation(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The evaluation reads the base and writes its own folder, but cannot reach the training's."""
    monkeypatch.undo()
    be_program(monkeypatch, probes=PROBES.format(folder=str(tmp_path)))
    (tmp_path / "other").write_text("of another lease")
    (base := tmp_path / "base").mkdir()
    (base / "weights").write_text("of the base")
    node, access = Node(tmp_path, walls=Walls(Confinement("require"))), Access((base,), job=JOB)
    process = await node.trained(access=access)
    evaluation = await node.start("score", access=access)
    probed, scored = await said(evaluation)
    assert probed == f"[{EACCES}, {EACCES}, {EACCES}, {EACCES}, 0]\n".encode()
    assert scored.startswith(f"scored {process.pid} ".encode())
    assert await evaluation.wait() == 3
    await node.close()


async def test_a_second_process_of_a_job_ends_the_first(
    tmp_path: Path,
) -> None:
    node = Node(tmp_path)
    kept = kept_processes.KeptProcesses(tmp_path / "kept")
    processes = []
    for number in (1, 2):
        folder = tmp_path / str(number)
        folder.mkdir()
        argv = (sys.executable, "-c", "import time; time.sleep(600)")
        process = await node.groups.start_one(argv, node.environment, folder, OF_JOB)
        kept.keep(process, folder, node.environment, OF_JOB)
        processes.append(process)
    async with asyncio.timeout(180):
        assert await processes[0].wait() == -signal.SIGKILL
        while (tmp_path / "kept" / "1").exists():  # noqa: ASYNC110  # a task deletes it
            await asyncio.sleep(0.01)
    assert (len(kept), processes[1].has_ended) == (1, False)
    await kept.close()
    await node.close()
