"""Each row of the refund table through the real stack, read from the bill over HTTP.

Servers, services, agents and processes are real; what trains and scores is a stand-in that ends as
its job's seed wants (`stand_in_process`). Jobs that fail by themselves run side by side.
"""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Final

import pytest
import pytest_asyncio

from schemas import errors
from tests.e2e import stand_in_agent
from tests.e2e.stand_in_process import FIRST_CHECKPOINT, STEP_S, STORIES, Story
from tests.e2e.stories import Json, RunningStack, running_stack, training
from tunery.billing.lines import CREDIT_OF_CAUSE
from tunery.local.stack import ServiceSpec
from tunery.plan.refunds import ATTEMPTS, JOBS

pytestmark = pytest.mark.timeout(900)

AGENT: Final = "agent-stand-in"
STAND_IN: Final = ServiceSpec(
    AGENT,
    module=stand_in_agent.__name__,
    env={"TUNERY_NODE_ID": "stand-in", "TUNERY_NODE_SLOTS": "8"},
    stop_ms_max=60_000,
)
#: some heartbeats after the checkpoint: a lost attempt has run as long as they say
PROVEN_STEP: Final = FIRST_CHECKPOINT + round(4 / STEP_S)

#: a job keeps away from nodes that failed under it, so its attempts need several to be used up soon
SPARES: Final = tuple(
    ServiceSpec(f"spare-{name}", module=STAND_IN.module, env={"TUNERY_NODE_ID": name})
    for name in "bcd"
)


@dataclass(frozen=True)
class Row:
    """A job that fails by itself.

    story: what happens to it; code: of its failure; causes: of its credits; free: it costs nothing.
    """

    story: Story
    code: str
    causes: frozenset[str]
    free: bool


FAILING: Final = (
    Row("oom", errors.OUT_OF_MEMORY, frozenset({"oom"}), free=True),
    Row(
        "platform",
        errors.ATTEMPTS_EXHAUSTED,
        frozenset({"platform", "attempts_exhausted"}),
        free=True,
    ),
    Row("unjudged", errors.PLATFORM, frozenset({"platform_error"}), free=True),
    Row("unpublished", errors.PLATFORM, frozenset({"platform_error"}), free=True),
    Row("divergence", errors.DIVERGED, frozenset(), free=False),
    Row("bad_data", errors.BAD_DATA, frozenset(), free=False),
    Row("user", errors.USER_ERROR, frozenset(), free=False),
    Row("nothing_learnt", errors.NOTHING_LEARNT, frozenset(), free=False),
)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def home() -> AsyncIterator[RunningStack]:
    async with running_stack((STAND_IN, *SPARES)) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def failing(home: RunningStack) -> Mapping[Story, str]:
    """The job of each failing row; all run at the same time."""
    return {row.story: await submit(home, row.story) for row in FAILING}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def alone(home: RunningStack) -> RunningStack:
    """The stack with one node, so that it is known which one runs a job."""
    for spare in SPARES:
        await home.stack.stop(spare.name)
    return home


async def submit(home: RunningStack, story: Story) -> str:
    return await home.submit(seed=STORIES.index(story))


async def with_checkpoint(home: RunningStack, job_id: str) -> None:
    """Wait until the job has trained on from a checkpoint, and heartbeats have said so."""
    await home.api.job(job_id, training)
    await home.api.until(f"/fine_tuning/jobs/{job_id}/checkpoints", lambda listed: listed["data"])
    await home.api.job(job_id, lambda job: job["progress"]["step"] >= PROVEN_STEP)


async def billed(home: RunningStack, job_id: str) -> Json:
    """The cost of an ended job, once its statement and its invoice say the same."""
    cost = await home.bill(job_id)
    statement = await home.api.get(f"/fine_tuning/jobs/{job_id}/statement")
    assert sum(line["billable_gpu_ms"] for line in statement["data"]) == cost["net_gpu_ms"]
    (invoice,) = (await home.api.get("/invoices"))["data"]
    page = await home.api.get(f"/invoices/{invoice['id']}/lines", limit=1_000)
    lines = [line for line in page["data"] if line["job_id"] == job_id]
    assert sum(line["gpu_ms"] for line in lines) == cost["net_gpu_ms"]
    assert sum(line["amount_micro"] for line in lines) == cost["amount_micro"]
    said = {line["description"].partition(": ")[2] for line in lines if line["kind"] == "credit"}
    assert said == {CREDIT_OF_CAUSE[cause] for cause in credits_of(cost)}
    return cost


def credits_of(cost: Json) -> dict[str, int]:
    """GPU time given back, by cause."""
    amounts: dict[str, int] = {}
    for line in cost["lines"]:
        if line["kind"] == "credit":
            amounts[line["cause"]] = amounts.get(line["cause"], 0) - line["billable_gpu_ms"]
    return amounts


def net_of_attempts(cost: Json) -> dict[int, int]:
    """Cost of each attempt, less credits."""
    net: dict[int, int] = {}
    for line in cost["lines"]:
        net[line["attempt"]] = net.get(line["attempt"], 0) + line["billable_gpu_ms"]
    return net


@pytest.mark.parametrize("row", FAILING, ids=lambda row: row.story)
async def test_money_a2_a_job_that_fails_is_billed_by_the_class_of_its_failure(
    home: RunningStack, failing: Mapping[Story, str], row: Row
) -> None:
    """Every attempt has written a checkpoint, so that its work alone is no reason to charge it."""
    job_id = failing[row.story]
    job = await home.api.ended(job_id, "failed")
    assert job["error"]["code"] == row.code
    assert (await home.api.get(f"/fine_tuning/jobs/{job_id}/checkpoints"))["data"]
    cost = await billed(home, job_id)
    assert cost["used_gpu_ms"] > 0
    assert set(credits_of(cost)) == row.causes
    if row.free:
        assert cost["net_gpu_ms"] == cost["amount_micro"] == 0
    else:
        assert cost["net_gpu_ms"] == cost["used_gpu_ms"]


async def test_money_a2_a_cancelled_job_is_billed(home: RunningStack) -> None:
    job_id = await submit(home, "endless")
    await with_checkpoint(home, job_id)
    await home.api.post(f"/fine_tuning/jobs/{job_id}/cancel")
    await home.api.ended(job_id, "cancelled")
    cost = await billed(home, job_id)
    assert cost["net_gpu_ms"] == cost["used_gpu_ms"] > 0


async def test_money_a2_work_since_the_checkpoint_of_a_lost_attempt_is_credited(
    alone: RunningStack,
) -> None:
    """kill -9 of the agent and all that it runs; it comes back when its silence was noticed."""
    job_id = await submit(alone, "endless")
    await with_checkpoint(alone, job_id)
    alone.stack.kill(AGENT, tree=True, restart=False)
    await alone.api.job(job_id, lambda job: job["phase"] == "queued")
    await alone.stack.start(AGENT)
    await assert_credited_since_checkpoint(alone, job_id, "lost")


async def test_money_a2_work_since_the_checkpoint_of_a_preempted_attempt_is_credited(
    alone: RunningStack,
) -> None:
    """The agent leaves in order, and the process ends without another checkpoint."""
    job_id = await submit(alone, "stubborn")
    await with_checkpoint(alone, job_id)
    await alone.stack.stop(AGENT)
    await alone.stack.start(AGENT)
    await assert_credited_since_checkpoint(alone, job_id, "preempted")


async def assert_credited_since_checkpoint(home: RunningStack, job_id: str, cause: str) -> None:
    await home.api.job(job_id, lambda job: job["attempt"] == 2 and job["phase"] == "running")
    await home.api.post(f"/fine_tuning/jobs/{job_id}/cancel")
    await home.api.ended(job_id, "cancelled")
    cost = await billed(home, job_id)
    first = sum(line["used_gpu_ms"] for line in cost["lines"] if line["attempt"] == 1)
    amounts = credits_of(cost)
    assert set(amounts) == {cause}
    assert 0 < amounts[cause] < first, "what the checkpoint keeps is paid for"
    assert net_of_attempts(cost)[1] == first - amounts[cause]


def test_money_a2_every_row_of_the_table_is_among_these_tests() -> None:
    """The others are not failures, or are shown by stories of their own."""
    elsewhere = {
        "bad_node",  # test_bad_days: a training without progress
        "budget",  # tests/simulation: use above the cap
        *("succeeded", "not_started"),
    }
    here = {row.story for row in FAILING} | {"tenant", "lost", "preempted"}
    assert {*ATTEMPTS} - elsewhere <= here
    # a hold that is used up takes hours: tests/simulation, and test_review2_m10_…
    assert {*JOBS} - {errors.BUDGET_EXHAUSTED} <= {row.code for row in FAILING}
