"""Replicas of a serving pool on two nodes, through the unmodified `openai` package."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import openai
import pytest
import pytest_asyncio

from tests.e2e.stories import AGENT_A, POLL_S, TINY, Json, RunningStack, running_stack, tunery
from tunery.local.stack import ServiceSpec

pytestmark = [pytest.mark.train, pytest.mark.timeout(900)]

AGENT_B = ServiceSpec("agent-b", module="services.trainer", env={"TUNERY_NODE_ID": "b"})
ASKED: list[Any] = [{"role": "user", "content": "What is 3 plus 6?"}]
READY_S_MAX = 480.0
USERS = [f"user-{number}" for number in range(12)]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def home() -> AsyncIterator[RunningStack]:
    async with running_stack((AGENT_A, AGENT_B)) as running:
        yield running


async def command(home: RunningStack, *words: str) -> Any:
    status, said = await tunery(home.stack.folders.root, *words, "--json")
    assert status == 0, said
    return json.loads(said)


async def pool_when(home: RunningStack, name: str, holds: Callable[[Json], bool]) -> Json:
    pool: Json = await home.api.until(f"/serving_pools/{name}", holds, READY_S_MAX)
    return pool


async def answers(client: openai.AsyncOpenAI, model: str) -> set[str]:
    """The likeliest answers to all users."""
    asked = [
        client.chat.completions.create(
            model=model, messages=ASKED, temperature=0, max_tokens=8, user=user
        )
        for user in USERS
    ]
    return {answer.choices[0].message.content or "" for answer in await asyncio.gather(*asked)}


def ready_nodes(pool: Json) -> set[str]:
    return {term["node"] for term in pool["terms"] if term["state"] == "ready"}


async def test_replicas_answer_move_when_a_node_is_killed_and_are_billed(
    home: RunningStack,
) -> None:
    job = await home.api.ended(await home.submit())
    version = job["fine_tuned_model"]
    name = (await command(home, "serving", "create", TINY, "--replicas", "2"))["id"]
    pool = await pool_when(home, name, lambda pool: pool["ready"] == 2)
    assert ready_nodes(pool) == {"a", "b"}
    deployed = await command(home, "deploy", "start", version, "--serving-pool", name)
    assert deployed["serving_pool"] == name
    async with openai.AsyncOpenAI(
        base_url=f"{home.stack.api_url}/v1",
        api_key=home.stack.admin_key,
        timeout=READY_S_MAX,
        max_retries=0,
    ) as client:
        patient = client.with_options(max_retries=20)
        before = await answers(patient, deployed["id"])  # both replicas load the version
        assert len(before) == 1, "both nodes compute the same"

        home.stack.kill("agent-a", tree=True, restart=False)
        assert await answers(client, deployed["id"]) == before  # clients see no error
        pool = await pool_when(
            home, name, lambda pool: any(term["state"] == "waiting" for term in pool["terms"])
        )
        assert ready_nodes(pool) == {"b"}
        await home.stack.start("agent-a")
        pool = await pool_when(home, name, lambda pool: pool["ready"] == 2)
        assert ready_nodes(pool) == {"a", "b"}
        assert await answers(patient, deployed["id"]) == before

        shown = await command(home, "deploy", "show", deployed["id"])
        assert shown["versions"][0]["health"]["state"] == "ready"
        await command(home, "serving", "scale", name, "0")
        pool = await pool_when(home, name, lambda pool: not pool["terms"])
        with pytest.raises(openai.InternalServerError) as away:
            await answers(client, deployed["id"])
        assert away.value.status_code == 503
        assert int(away.value.response.headers["retry-after"]) > 0
    await counted(home, version, 3 * len(USERS))
    await home.api.until(
        "/usage",
        lambda page: len(terms_of(page, name)) == 3,
        READY_S_MAX,
        group_by="job",
        limit=31,
    )
    await command(home, "deploy", "start", version)  # this machine's engine answers again
    await command(home, "serving", "remove", name)
    assert await command(home, "serving", "list") == []


def terms_of(page: Any, name: str) -> set[str]:
    """Terms of a serving pool with use on any day of the month."""
    results = [result for bucket in page["data"] for result in bucket["results"]]
    return {result["job_id"] for result in results if result["job_id"].startswith(name)}


async def counted(home: RunningStack, model: str, requests: int) -> None:
    """Wait until this number of requests to a version is counted, each once."""
    async with asyncio.timeout(READY_S_MAX):
        while True:
            page = await home.api.get("/usage/completions", limit=31, group_by="model")
            results = [result for bucket in page["data"] for result in bucket["results"]]
            known = sum(
                result["num_model_requests"] for result in results if result["model"] == model
            )
            if known >= requests:
                break
            await asyncio.sleep(POLL_S)
    assert known == requests
