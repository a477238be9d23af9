"""The unmodified Tinker SDK, with a training loop of the tenant's own, on a live stack.

The process is killed in the middle of it; what is saved at the end has the bytes of a loop that
nothing disturbed.
"""

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any, Final

import asyncpg
import httpx
import pytest

from tests.e2e.shared.guests import Guest
from tests.e2e.test_confinement import AGENT
from tests.environments import environment
from tunery.local import processes

pytestmark = pytest.mark.timeout(900)

VERSION: Final = "0.30.0"
SCRIPT: Final = Path(__file__).with_name("tinker_script.py")
PAGE: Final = Path(__file__).parents[3] / "docs" / "how-to" / "own-loop.md"
STORY_S_MAX: Final = 600
SAVED: Final = "SELECT files FROM gateway.saved_weights WHERE session_id = $1 AND command = $2"
LAST: Final = (
    "SELECT id FROM gateway.session_commands WHERE session_id = $1 AND kind = 'save_state' "
    "ORDER BY seq DESC LIMIT 1"
)


async def run_loop(home: Guest, *, kills: bool = False) -> Any:
    """What a loop prints last; its process is killed in the middle of it."""
    programs = await asyncio.to_thread(environment, "tinker", VERSION)
    process = await asyncio.create_subprocess_exec(
        *(str(programs / "python"), str(SCRIPT)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={
            "TUNERY_URL": home.stack.api_url,
            "TUNERY_KEY": home.key,
            "TUNERY_MODEL": home.base,
            "HOME": str(programs.parent),
        },
    )
    assert process.stdout is not None
    assert process.stdin is not None
    async with asyncio.timeout(STORY_S_MAX):
        half = await process.stdout.readline()
        if half and kills:
            kill_processes(home)
        process.stdin.write(b"\n")
        out, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    return json.loads(out.splitlines()[-1])


def kill_processes(home: Guest) -> None:
    agent = home.stack.supervisor.pid(AGENT)
    assert agent is not None
    for pid in processes.descendants(agent):  # the session's, and one that waits for the next
        os.kill(pid, signal.SIGKILL)


async def saved(home: Guest, session_id: str) -> dict[str, str]:
    """Hashes of the weights and the optimizer that a session has saved last."""
    connection = await asyncpg.connect(home.dsn)
    try:
        name = await connection.fetchval(LAST, session_id)
        files = json.loads(await connection.fetchval(SAVED, session_id, name))
    finally:
        await connection.close()
    return {f["name"]: f["sha256"] for f in files if f["name"].endswith(".safetensors")}


async def end(home: Guest, session_id: str) -> None:
    async with httpx.AsyncClient(base_url=home.stack.api_url, trust_env=False) as client:
        reply = await client.post(
            "/api/v1/unload_model",
            json={"model_id": session_id},
            headers={"x-api-key": f"tml-{home.key}"},
        )
    assert reply.is_success, reply.text
    job = await home.api.ended(session_id)
    assert job["fine_tuned_model"] is None
    cost = await home.bill(session_id)
    assert cost["net_gpu_ms"] > 0


async def test_a_tinker_loop_that_is_killed_ends_with_the_same_bytes(home: Guest) -> None:
    story = await run_loop(home, kills=True)
    losses = story["losses"]
    assert losses[-1] < 0.7 * losses[0]
    assert story["scored"] == pytest.approx(story["trained"], abs=1e-5)
    assert story["scored"][3:] == pytest.approx(story["sampled"], abs=1e-5)
    job = await home.api.get(f"/fine_tuning/jobs/{story['model']}")
    assert job["attempt"] == 2
    killed = await saved(home, story["model"])
    await end(home, story["model"])
    calm = await run_loop(home)
    assert calm["losses"] == losses
    assert await saved(home, calm["model"]) == killed
    await end(home, calm["model"])


async def test_the_page_on_tinker_loops_runs(home: Guest, tmp_path: Path) -> None:
    program = tmp_path / "loop.py"
    program.write_text(PAGE.read_text("utf-8").split("```python\n")[1].split("```")[0], "utf-8")
    programs = await asyncio.to_thread(environment, "tinker", VERSION)
    process = await asyncio.create_subprocess_exec(
        *(str(programs / "python"), str(program)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**home.variables, "TUNERY_MODEL": home.base, "HOME": str(tmp_path)},
    )
    out, errors = await asyncio.wait_for(process.communicate(), STORY_S_MAX)
    assert process.returncode == 0, errors.decode()
    *steps, tokens = out.decode().splitlines()
    losses = [float(step.split()[1]) for step in steps]
    assert len(losses) == 5
    assert losses[-1] < losses[0]
    assert len(json.loads(tokens)) == 5
