"""`tunery demo` with the real base model: every claim that it makes must hold.

It takes minutes of two cores, so `make soak` runs it; `make demo` is the same by hand. The
tests beside it go through each of its steps with a tiny model.
"""

import asyncio
import json
import sys

import pytest

from tunery.cli.demo.claims import CLAIMS

DEMO_S_MAX = 1_800  # ten minutes alone; its training runs at the lowest priority


@pytest.mark.soak
@pytest.mark.timeout(DEMO_S_MAX + 60)
async def test_every_claim_of_the_demo_holds() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tunery.cli.main",
        "demo",
        "--json",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        out, story = await asyncio.wait_for(process.communicate(), DEMO_S_MAX)
    finally:
        if process.returncode is None:  # it stops its servers before it leaves
            process.terminate()
            await process.wait()
    report = json.loads(out.decode().splitlines()[-1])
    broken = [claim for claim, held in report["claims"].items() if not held]
    assert (broken, process.returncode) == ([], 0), story.decode()[-6000:]
    assert set(report["claims"]) == set(CLAIMS)
    assert report["figures"]["demo_seconds"] > 0
