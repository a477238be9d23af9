"""Several ranks as one process: what is passed on, whom it names, how all end.

The ranks here are shells; real ones are in `tests/unit/tunery/ml/test_ranks.py`.
"""

import asyncio
import json
import signal
from collections.abc import Sequence
from typing import Final

import pytest

from tunery.ml.rank_processes import PlainProcess
from tunery.ranks import group as module
from tunery.ranks.group import RankGroup
from tunery.work.codec import encode_event
from tunery.work.events import AnyWorkEvent, Failed, Noted, Preempted, StepCompleted
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
            PlainProcess(
                await asyncio.create_subprocess_exec(
                    "/bin/sh", "-c", script, stdout=asyncio.subprocess.PIPE
                )
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
