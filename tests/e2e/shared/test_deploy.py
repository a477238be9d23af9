"""Two trained versions answer under one name, through the unmodified `openai` package."""

import asyncio
from time import monotonic
from typing import Any

import openai
import pytest

from tests.e2e.shared.guests import Guest
from tests.e2e.stories import POLL_S

pytestmark = [pytest.mark.train, pytest.mark.timeout(900)]  # two trainings, one after the other

ASKED: list[Any] = [{"role": "user", "content": "What is 3 plus 6?"}]
LOADED_S_MAX = 480.0
USERS = [f"user-{number}" for number in range(24)]


async def trained(home: Guest, seed: int) -> str:
    """The name of a version that was just trained."""
    job_id = await home.submit(seed=seed)
    job = await home.api.ended(job_id)
    name: str = job["fine_tuned_model"]
    return name


async def answering(client: openai.AsyncOpenAI, name: str, user: str) -> tuple[str, str]:
    """The version that answers this user, and its likeliest answer."""
    answer = await client.chat.completions.create(
        model=name, messages=ASKED, temperature=0, max_tokens=8, user=user
    )
    return answer.model, answer.choices[0].message.content or ""


async def test_two_versions_share_a_name_and_a_rollback_is_one_event(home: Guest) -> None:
    first, second = await asyncio.gather(trained(home, 1), trained(home, 2))
    shared = ("deploy", "start", first, "--with", second, "--share", "50")
    name = (await home.command(*shared))["id"]
    async with openai.AsyncOpenAI(
        base_url=f"{home.stack.api_url}/v1",
        api_key=home.key,
        timeout=LOADED_S_MAX,
    ) as client:
        alone = {model: (await answering(client, model, "x"))[1] for model in (first, second)}
        checkpoint = await newest_checkpoint(client, first)
        assert (await answering(client, checkpoint, "x"))[0] == checkpoint
        before = {user: await answering(client, name, user) for user in USERS}
        assert {model for model, _ in before.values()} == {first, second}
        assert all(text == alone[model] for model, text in before.values())
        async for chunk in await client.chat.completions.create(
            model=name, messages=ASKED, max_tokens=4, stream=True, user=USERS[0]
        ):
            assert chunk.model == before[USERS[0]][0]
        await counted(home, name, len(USERS) + 1)

        await home.command("deploy", "start", second)
        began = monotonic()
        await client.post(
            f"/models/{second}/rollback", body={"stage": "production"}, cast_to=object
        )
        after = await answering(client, name, USERS[0])
        assert after == (first, alone[first])
        print(f"rolled back, and answered by the former version, in {monotonic() - began:.2f} s")
    events = await home.command("model", "history", first)
    changes = [change["change"] for change in events]
    assert changes == ["published", "promotion", "replaced", "rollback"]


async def newest_checkpoint(client: openai.AsyncOpenAI, model: str) -> str:
    """The name under which the newest checkpoint of a model's job answers."""
    jobs = [job async for job in client.fine_tuning.jobs.list()]
    (job_id,) = (job.id for job in jobs if job.fine_tuned_model == model)
    checkpoints = await client.fine_tuning.jobs.checkpoints.list(job_id)
    return checkpoints.data[0].fine_tuned_model_checkpoint


async def counted(home: Guest, name: str, answers: int) -> None:
    """Wait until the deployment has this number of answers, none failed and both versions ready."""
    async with asyncio.timeout(LOADED_S_MAX):
        while True:
            shown = await home.api.get(f"/deployments/{name}")
            if sum(arm["answers"] for arm in shown["versions"]) >= answers:
                break
            await asyncio.sleep(POLL_S)
    assert [arm["failures"] for arm in shown["versions"]] == [0, 0]
    assert [arm["health"]["state"] for arm in shown["versions"]] == ["ready", "ready"]
    assert not shown["sample_ratio"]["mismatch"]
