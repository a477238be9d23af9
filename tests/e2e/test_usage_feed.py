"""The webhooks `usage.recorded` and `fine_tuning.job.anomaly`, through the real stack.

Servers, services, the agent and the receiver are real; what trains is a stand-in that ends as its
job's seed wants. The exporter is killed between two jobs, the watcher during one.
"""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from typing import Final

import asyncpg
import pytest
import pytest_asyncio
from standardwebhooks.webhooks import Webhook

from schemas.access import READER
from schemas.account import USAGE_RECORDED
from schemas.units import HOUR_MS, MICRO
from tests.e2e import stand_in_agent
from tests.e2e.stand_in_process import SPIKE_STEP, STORIES, Story
from tests.e2e.stories import POLL_S, Json, RunningStack, running_stack, training
from tests.infra.sql_boards import SQL_DASHBOARDS, in_postgres
from tunery.cli.demo.receiver import Received
from tunery.local.postgres import dsn
from tunery.local.stack import EXPORTER, ServiceSpec

pytestmark = pytest.mark.timeout(900)

STAND_IN: Final = ServiceSpec(
    "agent-stand-in", module=stand_in_agent.__name__, env={"TUNERY_NODE_ID": "stand-in"}
)
EXPORTS: Final = ServiceSpec(EXPORTER, env={"TUNERY_EXPORTER_EVERY_MS": "500"})
ANOMALY: Final = "fine_tuning.job.anomaly"
HOUR_S: Final = 3_600
DELIVERY_S_MAX: Final = 180.0
#: panels without rows here: no month has ended, no budget is set, no model answers
EMPTY: Final = ("Invoices of closed months", "Invoices", "Budgets", "Tokens of answers")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def home() -> AsyncIterator[RunningStack]:
    async with running_stack((STAND_IN, EXPORTS)) as running:
        yield running


def recorded(home: RunningStack, secret: str) -> dict[str, Json]:
    """The events that came, by id. Each has a valid signature, and says the same each time."""
    events: dict[str, Json] = {}
    for delivery in home.receiver.received:
        event = Webhook(secret).verify(delivery.body.decode(), delivery.headers)
        assert event["id"] == delivery.headers["webhook-id"]
        assert events.setdefault(event["id"], event) == event
    return events


def sums(events: dict[str, Json], job_id: str) -> Counter[str]:
    """GPU time of a job by kind; credits are below zero."""
    total: Counter[str] = Counter()
    for event in events.values():
        if event["data"]["id"] == job_id:
            total[event["data"]["kind"]] += event["data"]["gpu_ms"]
    return total


async def billed(home: RunningStack, story: Story) -> tuple[str, Counter[str]]:
    """A job that has failed, and its GPU time by kind, as its cost has it."""
    job_id = await home.submit(seed=STORIES.index(story))
    await home.api.ended(job_id, "failed")
    cost = await home.bill(job_id)
    total: Counter[str] = Counter()
    for line in cost["lines"]:
        total[line["kind"]] += line["billable_gpu_ms"]
    return job_id, total


async def await_recorded(
    home: RunningStack, secret: str, job_id: str, expected: Counter[str]
) -> None:
    """Wait until the events of the job add up to its cost."""
    async with asyncio.timeout(DELIVERY_S_MAX):
        while sums(recorded(home, secret), job_id) != expected:  # noqa: ASYNC110  # of processes
            await asyncio.sleep(POLL_S)


async def test_use_and_credits_reach_the_receiver_once_and_add_up_to_the_cost(
    home: RunningStack,
) -> None:
    endpoint = await home.api.post(
        "/webhook_endpoints",
        {"name": "finance", "url": home.receiver.url, "event_types": [USAGE_RECORDED]},
    )
    secret = endpoint["signing_secret"]
    credited, of_credited = await billed(home, "oom")
    assert of_credited["usage"] == -of_credited["credit"] > 0
    await await_recorded(home, secret, credited, of_credited)
    home.stack.kill(EXPORTER)
    charged, of_charged = await billed(home, "user")
    assert of_charged["usage"] > 0 == of_charged["credit"]
    await await_recorded(home, secret, charged, of_charged)
    events = recorded(home, secret)
    assert sums(events, credited) == of_credited, "the kill told nothing of the first job again"
    for event in events.values():
        assert event["type"] == USAGE_RECORDED
        assert event["data"]["hour_start"] % HOUR_S == 0
        assert event["data"]["hour_start"] <= event["created_at"]
    # an outcome is told to the API after the receiver has answered
    page = await home.api.until(
        f"/webhook_endpoints/{endpoint['id']}/deliveries?limit=100",
        lambda page: {delivery["outcome"] for delivery in page["data"]} == {"delivered"},
        DELIVERY_S_MAX,
    )
    assert {delivery["event"]["id"] for delivery in page["data"]} == set(events)


async def test_readers_of_postgresql_see_the_use_and_the_price_that_the_api_says(
    home: RunningStack,
) -> None:
    job_id, _ = await billed(home, "user")
    cost = await home.api.get(f"/fine_tuning/jobs/{job_id}/cost")
    settings = home.stack.settings
    assert settings.postgres_port is not None
    reader = await asyncpg.connect(dsn(settings.postgres_port, settings.keys, READER))
    job = await reader.fetchrow("SELECT * FROM gateway_reports.jobs WHERE job_id = $1", job_id)
    assert job is not None
    assert round(job["net_gpu_hours"] * HOUR_MS) == cost["net_gpu_ms"] > 0
    assert round(job["list_price"] * MICRO) == cost["amount_micro"] > 0
    assert (job["outcome"], job["currency"]) == ("failed", cost["currency"])
    assert job["wait_s"] >= 0
    used = await reader.fetchval("SELECT sum(net_gpu_hours) FROM billing_reports.usage_by_hour")
    listed = await reader.fetchval("SELECT sum(net_gpu_hours) FROM gateway_reports.jobs")
    assert round(used * HOUR_MS) == round(listed * HOUR_MS)  # each row is cut at its own last digit
    for panel in (panel for board in SQL_DASHBOARDS for panel in board.panels):
        rows = await reader.fetch(in_postgres(panel.sql, job["tenant"]))
        assert rows or panel.title in EMPTY, panel.title
    await reader.close()


async def test_a_loss_that_jumps_reaches_the_events_of_its_job_and_the_receiver(
    home: RunningStack,
) -> None:
    endpoint = await home.api.post(
        "/webhook_endpoints",
        {"name": "on call", "url": home.receiver.url, "event_types": [ANOMALY]},
    )
    job_id = await home.submit(seed=STORIES.index("spiking"))
    await home.api.job(job_id, training)
    await home.api.job(job_id, lambda job: job["progress"]["step"] >= SPIKE_STEP // 2)
    home.stack.kill("watcher")

    async with asyncio.timeout(DELIVERY_S_MAX):
        while not (received := anomalies(home)):  # noqa: ASYNC110  # of processes
            await asyncio.sleep(POLL_S)
    delivery = received[0]
    event = Webhook(endpoint["signing_secret"]).verify(delivery.body.decode(), delivery.headers)
    assert event["data"]["id"] == job_id
    assert (event["data"]["kind"], event["data"]["attempt"]) == ("loss_spike", 1)
    assert (event["data"]["measured_ppm"], event["data"]["usual_ppm"]) == (9_000_000, 1_000_000)
    messages = await home.api.messages(job_id)
    assert "The loss is 9, far above the usual 1" in messages
    await home.api.post(f"/fine_tuning/jobs/{job_id}/cancel", {})
    await home.api.ended(job_id, "cancelled")
    assert len({json.loads(delivery.body)["id"] for delivery in anomalies(home)}) == 1


def anomalies(home: RunningStack) -> list[Received]:
    return [post for post in home.receiver.received if json.loads(post.body)["type"] == ANOMALY]
