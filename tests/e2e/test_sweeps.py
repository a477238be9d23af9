"""A sweep runs to its end on the real stack, although the scheduler is killed between two jobs."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.e2e.stories import RunningStack, running_stack

pytestmark = pytest.mark.timeout(400)
SWEEP_S_MAX = 300


@pytest_asyncio.fixture(scope="module", loop_scope="session", name="home")
async def ready_stack() -> AsyncIterator[RunningStack]:
    async with running_stack() as home:
        yield home


async def test_sweep_goes_on_after_a_kill_and_names_the_best(home: RunningStack) -> None:
    job = home.request(training={"max_steps": 4, "max_length": 256})
    sweep = await home.api.post(
        "/sweeps", {"job": job, "parameters": {"rank": [2, 4]}, "at_once": 1}
    )
    path = f"/sweeps/{sweep['id']}"
    assert [listed["id"] for listed in (await home.api.get("/sweeps"))["data"]] == [sweep["id"]]
    assert len(home.stack.kill("scheduler")) == 1
    await home.stack.await_ready("scheduler")
    ended = await home.api.until(path, lambda shown: shown["status"] == "completed", SWEEP_S_MAX)
    runs = [run for trial in ended["trials"] for run in trial["jobs"]]
    losses = {run["job_id"]: run["validation_loss"] for run in runs}
    assert len(losses) == 2, ended
    assert ended["best_job_id"] == min(losses, key=lambda job_id: losses[job_id])
