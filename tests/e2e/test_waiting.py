"""A job that waits behind another on one node says so, over HTTP and in the terminal.

Servers, services, the agent and its processes are real; what trains is a stand-in.
"""

import json
import time
from collections.abc import AsyncIterator
from typing import Final

import pytest
import pytest_asyncio

from tests.e2e import stand_in_agent
from tests.e2e.stand_in_process import FAILING_STEP, STORIES
from tests.e2e.stories import Json, RunningStack, running_stack, training, tunery
from tunery.local.stack import ServiceSpec

pytestmark = pytest.mark.timeout(900)

READ_S_MAX: Final = 60  # since the gateway has read the queue: two, on a machine with time

AGENT: Final = ServiceSpec(
    "agent-stand-in",
    module=stand_in_agent.__name__,
    env={"TUNERY_NODE_ID": "only", "TUNERY_NODE_SLOTS": "1"},
    stop_ms_max=60_000,
)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def home() -> AsyncIterator[RunningStack]:
    async with running_stack((AGENT,)) as running:
        yield running


async def waiting(home: RunningStack, job_id: str, code: str, position: int) -> Json:
    """The `queue` of a job, once it waits there for this reason and its expected start is known.

    The gateway reads the queue anew after two seconds; until then a new job is behind all others.
    """

    def is_explained(shown: Json) -> bool:
        queue = shown["queue"]
        return bool(queue and (queue["code"], queue["position"]) == (code, position))

    shown = await home.api.until(f"/fine_tuning/jobs/{job_id}/queue", is_explained)
    queue: Json = shown["queue"]
    assert queue["eta"] >= shown["at"] - 1
    assert queue["eta_latest"] >= queue["eta"]
    return queue


async def test_first_hour2_u14_an_evaluation_begins_before_the_training_of_a_younger_job(
    home: RunningStack,
) -> None:
    """Two short jobs that wait for one slot: one is trained and evaluated, then the other."""
    runs = await home.submit(seed=STORIES.index("endless"))
    await home.api.job(runs, training)
    ends_well = STORIES.index("unpublished")  # the adapter of a stand-in cannot be published
    older = await home.submit(seed=ends_well)
    await waiting(home, older, "no_capacity", 1)
    younger = await home.submit(seed=ends_well)
    await waiting(home, younger, "lane_order", 2)
    await home.api.post(f"/fine_tuning/jobs/{runs}/cancel")
    for job_id in (older, younger):
        await home.api.job(job_id, lambda job: job["phase"] == "done")
    first, second = [await begins(home, job_id) for job_id in (older, younger)]
    assert first["Fine-tuning job started"] <= first["Evaluation started"]
    assert first["Evaluation started"] <= second["Fine-tuning job started"]
    assert second["Fine-tuning job started"] <= second["Evaluation started"]


async def begins(home: RunningStack, job_id: str) -> dict[str, int]:
    """When training and evaluation of a job began, in seconds. A training takes more than one."""
    page = await home.api.get(f"/fine_tuning/jobs/{job_id}/events", limit=1000)
    assert len([each for each in page["data"] if each["type"] == "metrics"]) >= FAILING_STEP
    return {event["message"]: event["created_at"] for event in page["data"]}


async def test_a_job_behind_others_says_for_what_it_waits_and_until_when(
    home: RunningStack,
) -> None:
    endless = STORIES.index("endless")
    runs = await home.submit(seed=endless)
    await home.api.job(runs, training)
    second = await home.submit(seed=endless)
    first_in_line = await waiting(home, second, "no_capacity", 1)
    third = await home.submit(seed=endless)
    behind = await waiting(home, third, "lane_order", 2)
    assert (first_in_line["jobs_ahead"], behind["jobs_ahead"]) == (0, 1)
    assert behind["eta"] >= first_in_line["eta"]
    await check_commands(home, runs, second, third)

    await home.api.post(f"/fine_tuning/jobs/{runs}/cancel")
    await home.api.job(second, training)
    moved = await waiting(home, third, "no_capacity", 1)
    assert moved["jobs_ahead"] == 0
    shown = await home.api.get(f"/fine_tuning/jobs/{second}/queue")
    assert (shown["status"], shown["queue"]) == ("running", None)

    await home.stack.stop(AGENT.name)
    stranded = await home.api.until(
        f"/fine_tuning/jobs/{third}/queue",
        lambda shown: shown["queue"] and shown["queue"]["code"] == "no_node_up",
    )
    assert stranded["queue"]["eta"] is None
    assert "operator" in stranded["queue"]["unblocked_by"]


async def check_commands(home: RunningStack, runs: str, second: str, third: str) -> None:
    """`tunery queue` and `tunery job why` say what the API says."""
    folder = home.stack.folders.root
    status, text = await tunery(folder, "job", "why", third)
    assert (status, "Waiting behind 1 job" in text) == (0, True), text
    began = int(time.time())
    status, text = await tunery(folder, "queue", "--json")
    assert status == 0, text
    queue = json.loads(text)
    assert [lease["job_id"] for lease in queue["leases"]] == [runs]
    assert [waits["job_id"] for waits in queue["waiting"]] == [second, third]
    assert queue["next"]["reservation"]["job_id"] == second
    assert queue["next"]["reservation"]["at"] >= began - READ_S_MAX
    status, text = await tunery(folder, "queue")
    assert (status, third in text) == (0, True), text
