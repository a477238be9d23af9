"""Panels and alerts of a stack that trains and is broken, in a Prometheus that scrapes it.

The rules are ours but for `for`, the time that an alert must hold: it is cut to FOR.
"""

import asyncio
import os
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from html import escape
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx
import pytest
import pytest_asyncio
import yaml
from aiokafka import AIOKafkaProducer

from schemas.topics import ACCOUNT
from tests.e2e.stories import AGENT_A, Json, RunningStack, running_stack
from tests.infra.boards import DASHBOARDS
from tests.observe.pictures import picture
from tests.observe.prometheus import Server, scraping
from tunery.local import prometheus
from tunery.local.ports import find_block
from tunery.local.stack import KNOWN, METRICS_PORT

pytestmark = pytest.mark.timeout(900)

FOR: Final = "2s"
NODE_TTL_MS: Final = 4_000
SCRAPES_S: Final = 5  # after the last event
FIRES_S_MAX: Final = 60.0
PAUSED_S: Final = 8.0  # more than the 5 s of the alert, less than the 10 s of the histogram
LATE: Final = 12  # submissions: more than a hundredth of the commands of five minutes
TINY_BUDGET: Final[Json] = {"max_gpu_hours": 0.001}
ACT_EVERY_S: Final = 0.1
VARIABLES: Final = {"$__rate_interval": "1m", "$__range": "10m", "$pool": ".*"}
DRAWN: Final = ("training", "queue")  # dashboards whose pictures the documentation shows
#: panels that are empty until something happens that does not happen here: what that is
EMPTY: Final[dict[str, str]] = {
    "fleet: Faulty devices: {{pool}} {{cause}}": "no device of this machine has a fault",
    "training: Devices at work: {{instance}} {{device}}": "this machine has processors alone",
    "training: Memory of devices: {{instance}} {{device}}": "this machine has processors alone",
    "training: Devices that idle in a training: {{instance}} {{device}}": "likewise",
    "training: Slowest rank, as a multiple of what is usual: {{instance}}": "one rank trains",
    "core: Time left of certificates: {{instance}} {{setting}}": "its Kafka has no TLS",
    "core: Restarts in an hour: {{task}} cancelled": "tasks end only when they are stopped",
}
BAD_RECORD: Final = b'{"record":"decree"}'  # of no kind that a journal has


class Observed(NamedTuple):
    """A stack that has lived through `live`, and its Prometheus."""

    home: RunningStack
    server: Server
    addresses: dict[str, str]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def observed(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Observed]:
    folder = tmp_path_factory.mktemp("prometheus")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(METRICS_PORT, str(find_block(0, len(KNOWN) + 1)))
        ttl = {"TUNERY_SCHEDULER_NODE_TTL_MS": str(NODE_TTL_MS)}
        async with running_stack((AGENT_A,), scheduler=ttl) as home:
            addresses = {
                name: f"127.0.0.1:{home.stack.metrics_port(name)[METRICS_PORT]}"
                for name in home.stack.services
            }
            with scraping(addresses, folder, hasty_rules(folder)) as server:
                await asyncio.sleep(SCRAPES_S)  # a counter grows from its second scrape on
                await live(home, server)
                await asyncio.sleep(SCRAPES_S)
                yield Observed(home, server, addresses)


def hasty_rules(folder: Path) -> Path:
    """A copy of the rules whose alerts fire once they have held for FOR."""
    content = yaml.safe_load(prometheus.RULES.read_text(encoding="utf-8"))
    for group in content["groups"]:
        for rule in group["rules"]:
            if "for" in rule:
                rule["for"] = FOR
    copy = folder / "rules.yml"
    copy.write_text(yaml.safe_dump(content), encoding="utf-8")
    return copy


async def live(home: RunningStack, server: Server) -> None:
    """Two jobs on one node, which is lost and comes back; bills, a webhook, a refusal, a chat."""
    await home.api.post(
        "/webhook_endpoints",
        {"url": home.receiver.url, "name": "panels", "event_types": ["fine_tuning.job.succeeded"]},
    )
    await be_refused(home)
    first = await home.submit()
    second = await home.submit()
    await home.with_checkpoint(first)
    home.stack.kill(AGENT_A.name, tree=True, restart=False)
    await asyncio.to_thread(server.await_alert, "NodeLost", FIRES_S_MAX)
    await asyncio.to_thread(server.await_alert, "ServiceDown", FIRES_S_MAX)
    await home.stack.start(AGENT_A.name)
    for job_id in (first, second):
        job = await home.api.ended(job_id)
        await home.bill(job_id)
    await ask(home, job)


async def be_refused(home: RunningStack) -> None:
    """A submission that a budget has no room for."""
    budget = await home.api.post("/budgets", TINY_BUDGET)
    body = home.request()
    reply = await home.api.patiently("POST", "/fine_tuning/jobs", json=body)
    assert reply.status_code == httpx.codes.TOO_MANY_REQUESTS, reply.text
    reply = await home.api.patiently("DELETE", f"/budgets/{budget['id']}")
    assert reply.is_success, reply.text


async def ask(home: RunningStack, job: Json) -> None:
    """Questions to the model of a job; its series begin with the first, and grow from then on."""
    body: dict[str, Any] = {"model": job["fine_tuned_model"], "max_tokens": 4}
    messages = [{"role": "user", "content": "Hello"}]
    for _ in range(2):
        await home.api.post("/chat/completions", body | {"messages": messages})
        await asyncio.sleep(SCRAPES_S)


def test_observe_promtool_complains_of_nothing(observed: Observed) -> None:
    up = {str(result["metric"]["service"]) for result in observed.server.ask("up == 1")}
    assert up == observed.addresses.keys()
    said: set[str] = set()
    for address in observed.addresses.values():
        done = subprocess.run(
            [str(prometheus.program("promtool")), "check", "metrics"],
            input=httpx.get(f"http://{address}/metrics").text,
            capture_output=True,
            text=True,
            check=False,
        )
        said |= set((done.stdout + done.stderr).splitlines())
    assert said == set()


def test_observe_every_panel_shows_data_of_a_stack_that_has_trained(observed: Observed) -> None:
    assert panels_without_data(observed.server) == EMPTY.keys()


def panels_without_data(server: Server) -> set[str]:
    """Dashboard, title and query of each panel's queries that have had no value."""
    return {
        f"{board.name}: {panel.title}: {query.legend}"
        for board in DASHBOARDS
        for panel in board.panels
        for query in panel.queries
        if not server.series(filled_in(query.text))
    }


def test_observe_dashboards_become_pictures(observed: Observed, tmp_path: Path) -> None:
    """With PICTURES=docs those of DRAWN are written there, for docs/how-to/observe.md."""
    server = observed.server
    folder = Path(os.environ.get("PICTURES", tmp_path))
    for board in DASHBOARDS:
        text = picture(
            board, lambda query: server.series(filled_in(query)), server.since, time.time()
        )
        assert all(escape(panel.title) in text for panel in board.panels)
        assert "<polyline" in text
        if board.name in DRAWN:
            (folder / f"panels-{board.name}.svg").write_text(text, encoding="utf-8")


def filled_in(query: str) -> str:
    """A query with what Grafana puts in place of its variables."""
    for variable, value in VARIABLES.items():
        query = query.replace(variable, value)
    return query


async def test_observe_an_alert_fires_when_rate_limits_are_counted_locally(
    observed: Observed,
) -> None:
    home = observed.home
    home.stack.kill("valkey", restart=False)
    await check_fires(observed, "RateLimitsAreLocal", lambda: home.api.call("GET", "/models"))
    await home.stack.start("valkey")


async def test_observe_an_alert_fires_when_answers_fail(observed: Observed) -> None:
    home = observed.home
    home.stack.kill("postgres", restart=False)
    await check_fires(observed, "ErrorBudgetBurnsFast", lambda: home.api.call("GET", "/models"))
    await home.stack.start("postgres")
    await home.api.get("/models")


async def test_observe_an_alert_fires_when_decisions_are_late(observed: Observed) -> None:
    """Submissions wait for a scheduler that says nothing; a budget then refuses all of them."""
    home = observed.home
    await home.api.post("/budgets", TINY_BUDGET)
    home.stack.pause("scheduler")
    body = home.request()
    submissions = [
        asyncio.create_task(home.api.call("POST", "/fine_tuning/jobs", json=body))
        for _ in range(LATE)
    ]
    await asyncio.sleep(PAUSED_S)
    home.stack.resume("scheduler")
    replies = await asyncio.gather(*submissions)
    assert not any(reply.is_success for reply in replies)
    await check_fires(observed, "DecisionsAreLate", no_more)


async def test_observe_an_alert_fires_when_a_partition_stops(observed: Observed) -> None:
    """Last: nothing mends what it breaks."""
    stack = observed.home.stack
    producer = AIOKafkaProducer(**stack.kafka_as().client_options)
    await producer.start()
    try:
        await producer.send_and_wait(ACCOUNT.journal.name, BAD_RECORD, partition=0)
    finally:
        await producer.stop()
    await check_fires(observed, "PartitionStopped", no_more)


async def no_more() -> None:
    """Nothing has to be done while an alert is awaited."""


async def check_fires(observed: Observed, name: str, act: Callable[[], Awaitable[object]]) -> None:
    """Assert that an alert which does not fire yet does so, while `act` goes on."""
    assert name not in observed.server.firing()
    waiting = asyncio.create_task(asyncio.to_thread(observed.server.await_alert, name, FIRES_S_MAX))
    while not waiting.done():
        await act()
        await asyncio.sleep(ACT_EVERY_S)
    await waiting
