"""Rules, metrics and dashboards in a real Prometheus, which scrapes a stack that trains a model."""

import asyncio
import subprocess
from pathlib import Path
from typing import Final

import httpx
import pytest

from tests.e2e.stories import AGENT_A, RunningStack, running_stack
from tests.infra.boards import DASHBOARDS
from tests.observe.prometheus import FOLDER, Server, programs, scraping
from tunery.local.ports import find_free
from tunery.local.stack import KNOWN, METRICS_PORT

pytestmark = pytest.mark.timeout(600)

SCRAPES_S: Final = 5  # after the last event
VARIABLES: Final = {"$__rate_interval": "1m", "$__range": "10m", "$pool": ".*"}
#: panels that are empty until something happens that does not happen here: what that is
EMPTY: Final[dict[str, str]] = {}


@pytest.mark.parametrize("command", ["check rules rules.yml", "test rules rules_test.yml"])
def test_observe_promtool_reads_the_rules_and_their_examples_come_true(command: str) -> None:
    done = subprocess.run(
        [str(programs().promtool), *command.split()],
        cwd=FOLDER,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


async def test_observe_every_panel_shows_data_of_a_stack_that_has_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = find_free(set())
    monkeypatch.setenv(METRICS_PORT, str(first))
    ports = [first + number for number in range(len(KNOWN) + 1)]  # the last is the agent's
    async with running_stack((AGENT_A,)) as home:
        with scraping(ports, tmp_path) as server:
            await asyncio.sleep(SCRAPES_S)  # a counter grows from its second scrape on
            await train_and_ask(home)
            await asyncio.sleep(SCRAPES_S)
            check_metrics(server, ports)
            assert panels_without_data(server) == EMPTY.keys()


async def train_and_ask(home: RunningStack) -> None:
    """A job to its bill, and a question to its model."""
    job_id = await home.submit()
    job = await home.api.ended(job_id)
    await home.bill(job_id)
    body = {"model": job["fine_tuned_model"], "messages": [{"role": "user", "content": "Hello"}]}
    await home.api.post("/chat/completions", body | {"max_tokens": 4})


def check_metrics(server: Server, ports: list[int]) -> None:
    """All that answer are scraped, and promtool has nothing to say of what they print."""
    scraped = {str(result["metric"]["instance"]) for result in server.ask("up == 1")}
    assert len(scraped) >= len(KNOWN) - 1, scraped
    for instance in scraped:
        text = httpx.get(f"http://{instance}/metrics").text
        done = subprocess.run(
            [str(programs().promtool), "check", "metrics"],
            input=text,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{instance}: {done.stderr}"


def panels_without_data(server: Server) -> set[str]:
    """Dashboard and title of each panel that has a query without a result."""
    return {
        f"{board.name}: {panel.title}"
        for board in DASHBOARDS
        for panel in board.panels
        if not all(server.ask(filled_in(query.text)) for query in panel.queries)
    }


def filled_in(query: str) -> str:
    """A query with what Grafana puts in place of its variables."""
    for variable, value in VARIABLES.items():
        query = query.replace(variable, value)
    return query
