"""Several ranks as one process: what is passed on, whom it names, how all end.

The ranks here are shells; real ones are in `tests/integration/services/trainer`.
"""

import asyncio
import json
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from services.trainer.adapters.processes import ProcessGroups
from tunery.ranks import group as module
from tunery.ranks.group import RankGroup
from tunery.work.codec import encode_event
from tunery.work.events import AnyWorkEvent, Failed, Noted, Preempted, RankBeat, StepCompleted
from tunery.work.exits import ExitCode

STEP: Final = StepCompleted(
    step=7, total_steps=9, epoch=1.0, loss=2.0, grad_norm=1.0, learning_rate=0.1,
    mean_token_accuracy=None, tokens=1, tokens_total=2,
)  # fmt: skip
NOTED, PREEMPTED = Noted(step=7, message="x"), Preempted(step=7)
FAILED = Failed(cause="bad_data", message="row 3 is broken", advice="Mend it.")
LOST = f"exit {ExitCode.RANK_LOST}"
NEVER_ENDS = "exec sleep 60"
KILLED = -signal.SIGKILL


def says(*events: AnyWorkEvent) -> str:
    return "; ".join(f"echo '{encode_event(event, 5).decode()}'" for event in events)


async def shells(*scripts: str, devices: Sequence[str] = ()) -> RankGroup:
    return RankGroup(
        [
            await ProcessGroups("shells").start_one(
                ("/bin/sh", "-c", script), os.environ, Path("/dev"), errors="null"
            )
            for script in scripts
        ],
        devices,
    )


async def ended(group: RankGroup) -> tuple[int, list[dict[str, str]], list[str]]:
    """The status, the events, and the last line of its errors."""
    try:
        events = [json.loads(line) async for line in group.lines()]
        return await group.wait(), events, group.error_tail().splitlines()[-1:]
    finally:
        group.signal(signal.SIGKILL)


async def test_events_of_the_first_rank_are_passed_on() -> None:
    group = await shells(f"{says(STEP, PREEMPTED)}; exit 75", f"{says(NOTED, PREEMPTED)}; exit 75")
    status, events, _ = await ended(group)
    assert (status, [event["type"] for event in events]) == (75, ["step", "preempted"])


async def test_a_line_that_was_cut_off_is_left_out() -> None:
    status, events, _ = await ended(await shells(f"{says(STEP)}; printf '{{\"type\":'; exit 0"))
    assert (status, [event["type"] for event in events]) == (0, ["step"])


@pytest.mark.parametrize(
    ("scripts", "status", "named"),
    [
        ((f"{says(FAILED)}; exit 65", LOST), 65, "rank 0 of 2: row 3 is broken"),
        ((LOST, f"{says(FAILED)}; exit 65"), 65, "rank 1 of 2: row 3 is broken"),
        ((LOST, "exit 1", LOST), 70, "left with exit code 1 after step 0"),
        ((LOST, "echo no event; exit 1"), 70, "rank 1 of 2 (process "),
    ],
)
async def test_the_rank_that_ended_the_others_is_named(
    scripts: tuple[str, ...], status: int, named: str
) -> None:
    code, events, _ = await ended(await shells(*scripts))
    assert (code, events[-1]["type"]) == (status, "failed")
    assert named in events[-1]["message"]


async def test_a_rank_is_named_with_its_device() -> None:
    """The cause is its own: what one device had too little memory for is tried in smaller parts."""
    oom = Failed(cause="oom", message="CUDA out of memory", advice="Lower it.")
    names = ("GPU-a", "GPU-b")
    code, events, _ = await ended(await shells(LOST, f"{says(oom)}; exit 71", devices=names))
    assert (code, events[-1]["cause"]) == (ExitCode.OOM, "oom")
    assert events[-1]["message"] == "rank 1 of 2 on GPU-b: CUDA out of memory"
    code, _, said = await ended(await shells("kill -9 $$", LOST, devices=names))
    assert "rank 0 of 2 on GPU-a (process " in said[0]


@pytest.mark.parametrize("other", [LOST, f"{says(FAILED)}; exit 70"])
async def test_a_rank_that_was_killed_is_left_to_who_knows_why(other: str) -> None:
    """Memory may have run out, or somebody killed it: the agent asks the kernel."""
    code, events, said = await ended(await shells(other, f"{says(STEP)}; kill -9 $$"))
    assert (code, events) == (KILLED, [])
    assert "rank 1 of 2 (process " in said[0]
    assert "was killed by SIGKILL after step 7; all ranks were ended" in said[0]


@pytest.mark.parametrize(
    ("grace_s", "scripts", "named"),
    [
        (0.1, (LOST, NEVER_ENDS), "did not answer after step 0"),
        (2.0, (LOST, "exit 3", NEVER_ENDS), "left with exit code 3"),
    ],
)
async def test_what_does_not_end_by_itself_is_killed(
    monkeypatch: pytest.MonkeyPatch, grace_s: float, scripts: tuple[str, ...], named: str
) -> None:
    """A rank that stands still is why the others have waited too long, unless one has died."""
    monkeypatch.setattr(module, "GRACE_S", grace_s)
    code, events, _ = await ended(await shells(*scripts))
    assert (code, events[-1]["type"]) == (ExitCode.PLATFORM, "failed")
    assert "rank 1 of " in events[-1]["message"]
    assert named in events[-1]["message"]


async def test_a_signal_reaches_all_ranks_and_those_that_are_gone_are_no_error() -> None:
    scripts = (f"trap 'exit 75' TERM; {says(STEP)}; while :; do sleep 0.01; done", "exit 75")
    group = await shells(*scripts)
    async for _ in group.lines():  # it has begun
        break
    group.signal(signal.SIGTERM)
    assert (await ended(group))[0] == ExitCode.PREEMPTED
    group.signal(signal.SIGTERM)


async def test_the_end_of_ranks_does_not_need_a_reader() -> None:
    """An agent that cannot pass an event on kills them, and waits."""
    group = await shells(f"{says(STEP)}; {NEVER_ENDS}", NEVER_ENDS)
    with pytest.raises(TimeoutError):  # it is cancelled while it waits
        await asyncio.wait_for(group.wait(), 0.01)
    group.signal(signal.SIGKILL)
    assert await group.wait() == KILLED


def beats(rank: int, moved: int, *, forever: bool = True) -> str:
    """A shell that writes heartbeats: of one place, and for ever or once."""
    waits = "gloo:all_reduce [7], number 2 of its group" if moved == 9 else ""
    beat = RankBeat(
        rank=rank, step=3, phase="forward", micro_batch=rank, moved=moved, collective=waits
    )
    return f"while {says(beat)}; do sleep 0.05; done" if forever else f"{says(beat)}; sleep 60"


@pytest.mark.parametrize(
    ("silent_s", "still_s", "scripts", "named"),
    [
        (0.5, 60, (beats(0, 9), beats(1, 7, forever=False)), "stands still: silent for 0 s"),
        (60, 0.5, (beats(0, 9), beats(1, 7)), "is behind: no rank moved for 0 s"),
    ],
)
async def test_review2_d1_a_rank_that_hangs_is_found_and_named(
    monkeypatch: pytest.MonkeyPatch,
    silent_s: float,
    still_s: float,
    scripts: tuple[str, ...],
    named: str,
) -> None:
    """The others wait for it in a collective, and go on saying so."""
    monkeypatch.setattr(module, "SILENT_S_MAX", silent_s)
    monkeypatch.setattr(module, "STILL_S_MAX", still_s)
    monkeypatch.setattr(module, "WATCH_S", 0.05)
    code, events, _ = await ended(await shells(*scripts, devices=("GPU-a", "GPU-b")))
    assert (code, [event["type"] for event in events]) == (ExitCode.PLATFORM, ["failed"])
    message = events[0]["message"]
    assert message.startswith("rank 1 of 2 on GPU-b (process ")
    assert f"{named}, in forward, micro-batch 1 of step 3" in message
    assert "; rank 0 waits in gloo:all_reduce [7], number 2 of its group; all ranks" in message


async def test_an_agent_that_is_slow_to_read_finds_no_rank_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While it stores a checkpoint it reads nothing of the first rank."""
    monkeypatch.setattr(module, "SILENT_S_MAX", 0.2)
    monkeypatch.setattr(module, "WATCH_S", 0.02)
    group = await shells(f"{says(RankBeat(rank=0), STEP)}; exit 75", "exit 75")
    events = []
    async for line in group.lines():
        events.append(json.loads(line)["type"])
        await asyncio.sleep(0.6)
    assert (await group.wait(), events) == (ExitCode.PREEMPTED, ["step"])
