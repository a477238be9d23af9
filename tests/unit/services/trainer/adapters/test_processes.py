"""Process groups: signals reach grandchildren, and a crash of the agent leaves nothing behind."""

import asyncio
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Final

import pytest

from services.trainer.adapters import processes as module
from services.trainer.adapters.processes import ProcessGroups, Walls
from services.trainer.ports import Access
from tunery.confinement.confined import Confinement, ConfineMode
from tunery.ranks.launching import RankLayout
from tunery.work.exits import WorkError

SPAWNS = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print(child.pid, flush=True)
time.sleep(60)
"""


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


async def gone(pid: int) -> bool:
    """A killed process takes a moment to leave the table, when its memory is gone already."""
    for _ in range(200):
        if not alive(pid):
            return True
        await asyncio.sleep(0.02)
    return False


async def test_lines_status_and_tail(tmp_path: Path) -> None:
    program = "import sys; print('one'); print('two'); sys.stderr.write('why'); sys.exit(3)"
    child = await ProcessGroups("t1").start([sys.executable, "-c", program], os.environ, tmp_path)
    assert [line async for line in child.lines()] == [b"one\n", b"two\n"]
    assert await child.wait() == 3
    assert child.error_tail() == "why"


async def test_kill_reaches_the_whole_group(tmp_path: Path) -> None:
    child = await ProcessGroups("t2").start([sys.executable, "-c", SPAWNS], os.environ, tmp_path)
    grandchild = int(await anext(child.lines()))
    child.signal(signal.SIGKILL)
    assert await child.wait() == -signal.SIGKILL
    assert await ProcessGroups("t2").sweep() <= 1  # at most the orphan, on its way out
    assert await gone(grandchild)
    child.signal(signal.SIGTERM)  # a group that is gone is no error


async def test_sweep_finds_what_an_earlier_agent_left(tmp_path: Path) -> None:
    child = await ProcessGroups("t3").start([sys.executable, "-c", SPAWNS], os.environ, tmp_path)
    grandchild = int(await anext(child.lines()))
    assert await ProcessGroups("another").sweep() == 0
    assert await ProcessGroups("t3").sweep() == 2
    assert await gone(grandchild)
    assert await child.wait() == -signal.SIGKILL


async def test_sched_b13_what_a_process_reads_is_counted(tmp_path: Path) -> None:
    (tmp_path / "weights").write_bytes(bytes(3_000_000))
    program = "open('weights', 'rb').read(); print('read', flush=True); import time; time.sleep(60)"
    child = await ProcessGroups("t9").start([sys.executable, "-c", program], os.environ, tmp_path)
    async for line in child.lines():
        assert line == b"read\n"
        break
    assert child.read_bytes() >= 3_000_000
    child.signal(signal.SIGKILL)
    await child.wait()
    assert child.read_bytes() == 0


RANK: Final = """
import os, sys, torch, torch.distributed as dist
torch.set_num_threads(1)
number, count = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group(
    "gloo", init_method=os.environ["TUNERY_RENDEZVOUS"], rank=number, world_size=count
)
total = torch.tensor([number])
dist.all_reduce(total)
sys.stderr.write(f"sum {total.item()}")
sys.stderr.flush()
os._exit(75)
"""


@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("mode", ["require", "off"])
async def test_review2_d1_ranks_add_up_in_their_walls_and_are_followed_as_one(
    folder_on_disk: Path, nodes: int, mode: ConfineMode
) -> None:
    """Ranks of one node use their own network, ranks of two the fabric: here both are `lo`."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        store = f"tcp://127.0.0.1:{server.getsockname()[1]}" if nodes > 1 else ""
    groups = []
    for at in range(nodes):
        (folder := folder_on_disk / str(at)).mkdir()
        here = range(2 * at, 2 * at + 2)
        layout = RankLayout(2 * nodes, here, node=at, store=store)
        walls = Walls(Confinement(mode))
        argv = [sys.executable, "-c", RANK]
        launcher = ProcessGroups(f"t4-{at}", walls)
        groups.append(await launcher.start(argv, os.environ, folder, Access(ranks=layout)))
    for at, group in enumerate(groups):
        assert [line async for line in group.lines()] == []
        assert await group.wait() == 75, group.error_tail()
        for name in ("", f"{2 * at + 1}."):
            said = (folder_on_disk / str(at) / f"{name}stderr.log").read_text()
            assert said.splitlines()[-1] == f"sum {sum(range(2 * nodes))}"


async def test_a_rank_that_cannot_be_started_leaves_none_behind(tmp_path: Path) -> None:
    (tmp_path / "1.stderr.log").mkdir()
    argv = [sys.executable, "-c", "import time; time.sleep(60)"]
    with pytest.raises(IsADirectoryError):
        await ProcessGroups("t5").start(
            argv, os.environ, tmp_path, Access(ranks=RankLayout(2, range(2)))
        )
    assert await ProcessGroups("t5").sweep() == 0


async def test_review2_d1_a_folder_that_ranks_would_not_see_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each lease has a file system of its own at `/dev/shm`, which hides what is below."""
    monkeypatch.setattr(module, "SHARED_MEMORY", str(tmp_path))
    launcher = ProcessGroups("t6", Walls(Confinement("require")))
    layout = RankLayout(2, range(2))
    with pytest.raises(WorkError) as refused:
        await launcher.start(["true"], os.environ, tmp_path / "lease", Access(ranks=layout))
    assert str(tmp_path / "lease") in refused.value.message
    assert (refused.value.cause, "TUNERY_NODE_WORK_DIR" in refused.value.advice) == (
        "bad_node",
        True,
    )
