"""Training and evaluation of a job in one process: the journal is that of two processes.

Pool, agent and processes are real; what they compute is a few lines. A process dies in each phase.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from schemas import pool
from services.trainer.adapters.leased import LeaseProcesses
from services.trainer.adapters.processes import ProcessGroup, ProcessGroups, find_marked
from tests.unit.services.trainer.effect.machines import SLOTS, Script, node
from tests.unit.tunery.work.samples import STARTED
from tunery.platform.memory_servers import memory_servers
from tunery.work.codec import encode_event
from tunery.work.orders import GOES_ON, SCORE, TRAIN

#: what the module does that it is started as, and where it dies
PROCESS: Final = """
import json, os, sys
started, module, dies = sys.argv[1:]
def passes(phase):
    if phase == dies:
        os.kill(os.getpid(), 9)
if module != "tunery.ml.score":
    print(started, flush=True)
    passes("training")
    if module == "tunery.ml.train":
        sys.exit(0)
    print("ended", flush=True)
    passes("between")
    order = json.loads(sys.stdin.readline())
    os.chdir(order["folder"])
    passes("handover")
    print("begun", flush=True)
print(started, flush=True)
passes("evaluation")
"""
Launches = list[str]


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Launches]:
    """Has `PROCESS` started instead of modules; returns which, as they start."""
    start = ProcessGroups.start_one

    def dying(phase: str) -> Launches:
        started: Launches = []

        async def start_one(
            self: ProcessGroups, argv: Any, *rest: Any, **more: Any
        ) -> ProcessGroup:
            started.append(argv[2])
            event = encode_event(STARTED, 0).decode()
            return await start(self, (argv[0], "-c", PROCESS, event, argv[2], phase), *rest, **more)

        monkeypatch.setattr(ProcessGroups, "start_one", start_one)
        return started

    return dying


async def journal(folder: Path, *, goes_on: bool) -> list[tuple[str, int, str]]:
    """Starts, ends and causes of a training and, where it succeeds, of its evaluation."""
    groups = ProcessGroups(str(folder))
    launcher = LeaseProcesses(groups, folder / "kept", SLOTS) if goes_on else groups
    modules = iter((TRAIN, SCORE))
    events: list[Any] = []
    async with node(
        await memory_servers(),
        folder,
        lambda _: Script(module=next(modules)),
        launcher=launcher,
    ) as here:
        for attempt in (1, 2):
            await here.request("job1", attempt)
            events = await here.until(pool.MemberFreed, attempt)
            closed = [event for event in events if isinstance(event, pool.PlacementClosed)]
            if closed[-1].end.outcome != "succeeded":
                break
        assert find_marked(str(folder)) == set(), "no process is left"
    said = []
    for event in events:
        match event:
            case pool.LeaseStarted():
                said.append(("started", event.lease.attempt, ""))
            case pool.PlacementClosed():
                said.append((event.end.outcome, event.attempt, event.end.cause or ""))
            case pool.MemberFreed():
                said.append(("freed", event.lease.attempt, ""))
            case _:
                pass
    return said


@pytest.mark.parametrize(
    ("dies", "launched_together", "launched_apart"),
    [
        ("never", [GOES_ON], [TRAIN, SCORE]),
        ("training", [GOES_ON], [TRAIN]),
        ("between", [GOES_ON, SCORE], [TRAIN, SCORE]),
        ("handover", [GOES_ON, SCORE], [TRAIN, SCORE]),
        ("evaluation", [GOES_ON], [TRAIN, SCORE]),
    ],
)
async def test_first_hour2_u14_one_process_leaves_the_journal_of_two(
    dies: str,
    launched_together: Launches,
    launched_apart: Launches,
    launches: Callable[[str], Launches],
    tmp_path: Path,
) -> None:
    started = launches(dies)
    together = await journal(tmp_path / "one", goes_on=True)
    assert started == launched_together
    started = launches(dies)
    assert together == await journal(tmp_path / "two", goes_on=False)
    assert started == launched_apart
