"""`bench.follow --quick` runs with a few followers, and none of them loses a step."""

import asyncio
import json
import sys

import pytest

WAIT_S = 480


@pytest.mark.soak  # make figures runs it at full size
async def test_no_follower_loses_a_step() -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.follow", "--quick", "--json"),
        stdout=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(WAIT_S):
        answer, _ = await process.communicate()
    assert process.returncode == 0
    figures = json.loads(answer.splitlines()[-1])
    assert (figures["lost"], figures["twice"]) == (0, 0)
    assert figures["events_per_s"] > 0
