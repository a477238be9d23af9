"""Counts of answers until they are sent, and shadow questions in the background."""

import asyncio

from schemas.deployments import Arm, ArmTraffic, Deployment
from services.gateway.deployments.traffic import SHADOWS_MAX, TENANT_SHADOWS_MAX, TrafficCounts
from tests.unit.services.gateway.control_plane import ControlPlane
from tests.unit.services.gateway.deployments.test_routes import deploy
from tests.unit.services.gateway.models.test_routes import version


def answered(model: str, tokens: int) -> ArmTraffic:
    return ArmTraffic(model_id=model, role="first", answers=1, completion_tokens=tokens)


async def test_answers_are_sent_once_as_their_sum(api: ControlPlane) -> None:
    client = await api.tenant()
    first, second = await version(api, client, "a"), await version(api, client, "b")
    shown = await deploy(client, first, traffic={first: 50, second: 50})
    known = Deployment(
        series=shown["series"],
        stage="production",
        model_id=first,
        second=Arm(model_id=second, buckets=5_000),
    )
    counts = TrafficCounts(api.deps.commands, api.deps.clock)
    counts.note(client.headers["x-tenant"], known, answered(first, 5), 9_000)
    await counts.work()  # of another salt: dropped
    await counts.work()
    (listed,) = (await client.get("/v1/deployments")).json()["data"]
    assert [arm["answers"] for arm in listed["versions"]] == [0, 0]


async def test_few_questions_are_asked_aside_at_once(api: ControlPlane) -> None:
    counts, go, asked = TrafficCounts(api.deps.commands, api.deps.clock), asyncio.Event(), []

    async def ask() -> None:
        await go.wait()
        asked.append(1)

    def begun(tenant: str) -> int:
        return sum(counts.ask_aside(tenant, ask) for _ in range(SHADOWS_MAX))

    assert begun("acme") == TENANT_SHADOWS_MAX
    assert sum(begun(f"tenant-{number}") for number in range(SHADOWS_MAX)) == (
        SHADOWS_MAX - TENANT_SHADOWS_MAX
    )
    go.set()
    await counts.settle()
    assert len(asked) == SHADOWS_MAX
    assert counts.ask_aside("acme", ask)
    await counts.settle()
