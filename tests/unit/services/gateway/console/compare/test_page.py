"""A comparison shows what differs, of own jobs alone, and no more than six."""

import asyncio
import html
import json
import re

import pytest

from schemas.telemetry import Step
from services.gateway.console.calls import Calls
from services.gateway.console.compare.page import differences
from tests.unit.services.gateway.console.consoles import console_of, key_of, signed_in
from tests.unit.services.gateway.control_plane import ControlPlane
from tests.unit.services.gateway.jobs.test_routes import ready, submit


def step(tenant: str, job_id: str, number: int, loss: float) -> Step:
    return Step(
        tenant=tenant,
        job_id=job_id,
        attempt=1,
        step=number,
        total_steps=9,
        loss=loss,
        accuracy=None,
        grad_norm=None,
        learning_rate=1e-4,
        tokens=10,
        elapsed_ms=10,
    )


async def test_jobs_are_compared_by_what_differs(api: ControlPlane) -> None:
    client, file_id = await ready(api)
    jobs = [
        (await submit(client, file_id, suffix=suffix, seed=1, lora={"rank": rank})).json()["id"]
        for suffix, rank in (("a", 8), ("b", 16))
    ]
    tenant = client.headers["x-tenant"]
    for number, loss in ((1, 2.0), (2, float("nan")), (3, 1.0)):
        await api.telemetry(tenant, jobs[0], step(tenant, jobs[0], number, loss))
    path = f"/v1/fine_tuning/jobs/{jobs[0]}/metrics"
    await api.until(client, path, lambda page: len(page["data"]) == 3)
    async with signed_in(console_of(api), key_of(client)) as browser:
        page = await browser.get("/console/compare", params={"job": [*jobs, jobs[0]]})
        assert "Compare 2 jobs" in page.text
        assert "training.rank" in page.text
        assert "training.learning_rate" not in page.text
        attribute = re.search(r'data-curves="([^"]*)"', page.text)
        assert attribute is not None
        curves = json.loads(html.unescape(attribute[1]))
        assert curves[0]["train_loss"] == [2.0, None, 1.0]
        for count in (1, 7):
            named = {"job": [f"ftjob-{number}" for number in range(count)]}
            assert (await browser.get("/console/compare", params=named)).status_code == 400
    other = await api.tenant()
    async with signed_in(console_of(api), key_of(other)) as browser:
        assert (await browser.get("/console/compare", params={"job": jobs})).status_code == 404


async def test_steps_of_one_job_at_a_time_are_in_memory(
    api: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, file_id = await ready(api)
    jobs = [(await submit(client, file_id, suffix=name)).json()["id"] for name in "abc"]
    at_once, most = 0, 0

    async def steps_of(calls: Calls, path: str) -> list[Step]:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0)
        at_once -= 1
        return []

    monkeypatch.setattr("services.gateway.console.compare.page.steps_of", steps_of)
    async with signed_in(console_of(api), key_of(client)) as browser:
        page = await browser.get("/console/compare", params={"job": jobs})
    assert (page.status_code, most) == (200, 1)


def test_settings_of_some_jobs_alone_differ_too() -> None:
    left = {"suffix": "a", "training": {"rank": 8, "pattern": {}}, "seed": 1}
    right = {"suffix": "b", "training": {"rank": 8, "pattern": {"q": 4}}, "seed": 1}
    assert differences([left, right]) == {
        "training.pattern": [{}, None],
        "training.pattern.q": [None, 4],
    }
