"""A process that waits is used for one lease at most, and its death costs a job nothing."""

import os
import shutil
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from services.trainer.adapters.processes import ProcessGroup, ProcessGroups
from services.trainer.adapters.warm import WarmProcesses
from services.trainer.ports import NO_ACCESS, Access, WorkProcess
from tunery.ranks.launching import RankLayout

# What `tunery.ml.warm` does with its pipes, without the seconds of its imports.
WAITS: Final = """
import json, os, sys
line = sys.stdin.readline()
if not line:
    sys.exit(74)
{dies}
order = json.loads(line)
os.chdir(order["folder"])
print("begun", flush=True)
print(f"warm {os.getpid()} {os.getcwd()} {order['module']}", flush=True)
sys.stderr.write("its last words")
sys.stderr.flush()
sys.exit(3)
"""
DIES: Final = "os.kill(os.getpid(), 9)"
WORK: Final = (sys.executable, "-m", "tunery.ml.score")  # without a spec it is told how to be used


class Node:
    """A node's launcher; what waits there is `waiting`."""

    def __init__(self, folder: Path, slots: int = 1, dies: str = "pass") -> None:
        self.folder, self.mark = folder / "lease", str(folder)
        self.environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
        script = WAITS.replace("{dies}", dies)
        groups = ProcessGroups(self.mark)
        self.launcher = WarmProcesses(
            groups, folder / "warm", slots, self.environment, ("-c", script)
        )

    @property
    def waiting(self) -> ProcessGroup | None:
        return self.launcher._warm

    def waits(self) -> bool:
        return self.waiting is not None

    async def start(
        self,
        spec: str = "spec.json",
        environment: Mapping[str, str] | None = None,
        access: Access = NO_ACCESS,
    ) -> WorkProcess:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        (self.folder / "input").write_text("of the lease")
        return await self.launcher.start(
            (*WORK, spec), environment or self.environment, self.folder, access
        )

    async def close(self) -> None:
        await self.launcher._dismiss()
        assert await ProcessGroups(self.mark).sweep() == 0


async def said(process: WorkProcess) -> list[bytes]:
    return [line async for line in process.lines()]


async def test_the_process_that_waits_becomes_that_of_the_lease(tmp_path: Path) -> None:
    node = Node(tmp_path)
    assert await node.launcher.sweep() == 0
    waiting = node.waiting
    assert waiting is not None
    process = await node.start()
    assert process.pid == waiting.pid
    assert node.waits() is False, "the node has one slot: no more processes than that"
    assert await said(process) == [f"warm {process.pid} {node.folder} tunery.ml.score\n".encode()]
    assert (node.folder / "input").read_text() == "of the lease"
    assert await process.wait() == 3
    assert process.error_tail() == "its last words"
    assert node.waiting is not None, "and one waits for the next lease"
    assert node.waiting.pid != process.pid, "a process serves one lease"
    await node.close()


@pytest.mark.parametrize("when", ["before the order", "with the order"])
async def test_a_process_that_dies_before_it_begins_is_replaced_in_its_lease(
    when: str, tmp_path: Path
) -> None:
    node = Node(tmp_path, dies=DIES if when == "with the order" else "pass")
    await node.launcher.sweep()
    waiting = node.waiting
    assert waiting is not None
    if when == "before the order":
        os.kill(waiting.pid, signal.SIGKILL)
    process = await node.start("none.json")
    (failed,) = await said(process)
    assert b"none.json" in failed, "a fresh process looked for the spec"
    assert process.pid != waiting.pid
    assert await process.wait() == 64
    await node.close()


async def test_one_that_is_told_to_end_before_it_begins_is_not_replaced(tmp_path: Path) -> None:
    node = Node(tmp_path, dies="import time; time.sleep(60)")
    await node.launcher.sweep()
    process = await node.start()
    process.signal(signal.SIGTERM)
    assert await said(process) == []
    assert await process.wait() == -signal.SIGTERM
    await node.close()


async def test_a_lease_with_other_devices_gets_a_process_of_its_own(tmp_path: Path) -> None:
    node = Node(tmp_path, slots=2)
    await node.launcher.sweep()
    waiting = node.waiting
    other = await node.start("none.json", {**node.environment, "CUDA_VISIBLE_DEVICES": "1"})
    assert len(await said(other)) == 1
    assert node.waiting is waiting, "the second slot is free"
    await other.wait()
    assert node.waiting is not waiting, "the devices that are free now are those of the last lease"
    process = await node.start("none.json")
    await said(process)
    assert await process.wait() == 64, "and those are not this lease's"
    await node.close()


async def test_after_ranks_a_process_waits_for_a_lease_of_one_device(tmp_path: Path) -> None:
    node = Node(tmp_path, slots=2)
    names = ("GPU-1", "GPU-2")
    both = {**node.environment, "CUDA_VISIBLE_DEVICES": ",".join(names)}
    ranks = await node.start(
        "none.json", both, Access(ranks=RankLayout(2, range(2), devices=names))
    )
    await said(ranks)
    await ranks.wait()
    waiting = node.waiting
    assert waiting is not None
    own = {**node.environment, "CUDA_VISIBLE_DEVICES": "GPU-1"}
    process = await node.start("spec.json", own)
    assert process.pid == waiting.pid
    await said(process)
    await process.wait()
    await node.close()


async def test_none_waits_while_all_slots_work(tmp_path: Path) -> None:
    node = Node(tmp_path)
    await node.launcher.sweep()
    waiting = node.waiting
    assert waiting is not None
    process = await node.start("none.json", {**node.environment, "LANG": "C"})
    assert (node.waiting, waiting.has_ended) == (None, True)
    await said(process)
    await process.wait()
    await node.close()


async def test_ranks_take_as_many_slots_as_they_are(tmp_path: Path) -> None:
    """Here they have no spec, and end."""
    node = Node(tmp_path, slots=3)
    await node.launcher.sweep()
    waiting = node.waiting
    assert waiting is not None
    process = await node.start("none.json", access=Access(ranks=RankLayout(2, range(2))))
    assert node.waiting is waiting, "the third slot is free"
    (failed,) = await said(process)
    assert b"rank 0 of 2: none.json" in failed
    assert await process.wait() == 64
    process = await node.start("none.json", access=Access(ranks=RankLayout(3, range(3))))
    assert not node.waits()
    await said(process)
    await process.wait()
    assert node.waits()
    await node.close()


async def test_a_process_whose_agent_is_gone_does_not_wait(tmp_path: Path) -> None:
    node = Node(tmp_path)
    await node.launcher.sweep()
    waiting = node.waiting
    assert waiting is not None
    stream = waiting._process.stdin
    assert stream is not None
    stream.close()  # as the kernel closes it when the agent dies
    assert await waiting.wait() == 74


async def test_a_folder_that_cannot_be_made_costs_the_warm_start_alone(tmp_path: Path) -> None:
    node = Node(tmp_path)
    (tmp_path / "warm").write_text("a file in the way")
    assert await node.launcher.sweep() == 0
    assert node.waiting is None
    process = await node.start("none.json")
    assert len(await said(process)) == 1
    assert await process.wait() == 64
    await node.close()


async def test_security_h1_a_process_waits_with_what_leases_before_it_needed(
    tmp_path: Path,
) -> None:
    node, base = Node(tmp_path), tmp_path / "base"
    await node.launcher.sweep()
    waiting = node.waiting
    assert waiting is not None
    process = await node.start("none.json", access=Access(read=(base,)))
    assert process.pid != waiting.pid, "it may not read this base: another was started"
    await said(process)
    await process.wait()
    waiting = node.waiting
    assert waiting is not None
    process = await node.start(access=Access(read=(base,)))
    assert process.pid == waiting.pid
    await said(process)
    await process.wait()
    await node.close()
    again = Node(tmp_path)
    await again.launcher.sweep()
    waiting = again.waiting
    assert waiting is not None
    process = await again.start(access=Access(read=(base,)))
    assert process.pid == waiting.pid, "also after the agent has started anew"
    await said(process)
    await process.wait()
    await again.close()
