"""Process groups: signals reach grandchildren, and a crash of the agent leaves nothing behind."""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Final

import pytest

from services.trainer.adapters.processes import ProcessGroups, Walls
from services.trainer.ports import Access
from tunery.confinement.confined import Confinement
from tunery.ranks.joining import HALVES, PART_BYTES

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
import os, sys
number, memory, *connections = sys.argv[1:]
for connection in connections:
    os.write(int(connection), number.encode())
letters = sorted(os.read(int(connection), 1).decode() for connection in connections)
sys.stderr.write(f"{number} has {os.fstat(int(memory)).st_size} bytes, and letters {letters}")
sys.exit(75)
"""


async def test_ranks_are_joined_confined_and_followed_as_one(tmp_path: Path) -> None:
    """Each is confined as a process that works alone: it opens no socket and starts no process."""
    walls = Walls(Confinement("prefer"))
    argv = [sys.executable, "-c", RANK]
    group = await ProcessGroups("t4", walls).start(argv, os.environ, tmp_path, Access(ranks=3))
    assert [line async for line in group.lines()] == []
    assert await group.wait() == 75
    others = {"": ["1", "2"], "1.": ["0", "2"], "2.": ["0", "1"]}
    for name, letters in others.items():
        said = (tmp_path / f"{name}stderr.log").read_text()
        assert said == f"{name[:1] or 0} has {HALVES * 3 * PART_BYTES} bytes, and letters {letters}"


async def test_a_rank_that_cannot_be_started_leaves_none_behind(tmp_path: Path) -> None:
    (tmp_path / "1.stderr.log").mkdir()
    argv = [sys.executable, "-c", "import time; time.sleep(60)"]
    with pytest.raises(IsADirectoryError):
        await ProcessGroups("t5").start(argv, os.environ, tmp_path, Access(ranks=2))
    assert await ProcessGroups("t5").sweep() == 0
