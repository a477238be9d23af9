"""Deployments over HTTP: versions that share a stage, and who is answered by which."""

from typing import Any

import httpx
import pytest

from services.gateway.deployments.traffic import TrafficCounts
from tests.unit.services.gateway.chat.scripted_engine import HELLO, ScriptedEngine
from tests.unit.services.gateway.chat.test_routes import HI, URL, engine
from tests.unit.services.gateway.control_plane import ControlPlane
from tests.unit.services.gateway.models.test_routes import version
from tunery.work.engine import FAILED, QuestionRefused

__all__ = ["engine"]  # a fixture
CALLERS = 60


def stage_of(model: str) -> str:
    return f"{model.rpartition(':')[0]}:production"


def traffic_of(api: ControlPlane) -> TrafficCounts:
    counts = api.deps.traffic
    assert isinstance(counts, TrafficCounts)
    return counts


async def deploy(client: httpx.AsyncClient, model: str, **body: Any) -> dict[str, Any]:
    answer = await client.post(f"/v1/models/{model}/deploy", json={"stage": "production", **body})
    assert answer.status_code == 200, answer.text
    shown: dict[str, Any] = answer.json()
    return shown


async def answering(client: httpx.AsyncClient, model: str, user: str | None) -> str:
    """The version that answers a question of this user."""
    answer = await client.post(URL, json={"model": model, "messages": HI, "user": user})
    assert answer.status_code == 200, answer.text
    name: str = answer.json()["model"]
    return name


async def test_two_versions_answer_under_one_name_each_caller_always_the_same(
    api: ControlPlane, engine: ScriptedEngine
) -> None:
    client = await api.tenant()
    first, second = await version(api, client, "a"), await version(api, client, "b")
    shown = await deploy(client, first, traffic={first: 70, second: 30})
    assert (shown["id"], shown["model"]) == (stage_of(first), first)
    assert [(arm["role"], arm["share"]) for arm in shown["versions"]] == [
        ("first", 70.0),
        ("second", 30.0),
    ]
    users = [f"user-{number}" for number in range(CALLERS)]
    before = {user: await answering(client, shown["id"], user) for user in users}
    assert {*before.values()} == {first, second}
    assert before == {user: await answering(client, shown["id"], user) for user in users}
    assert len({await answering(client, shown["id"], None) for _ in range(3)}) == 1
    askers = {question.asker.model for question in engine.asked if question.asker is not None}
    assert askers == {first, second}, "each is counted under its own name"

    await deploy(client, first, traffic={first: 40, second: 60})
    more = {user: await answering(client, shown["id"], user) for user in users}
    assert all(more[user] == second for user in users if before[user] == second)
    assert sum(name == second for name in more.values()) > sum(
        name == second for name in before.values()
    )
    await deploy(client, first)
    assert {await answering(client, shown["id"], user) for user in users} == {first}


async def test_callers_are_counted_and_a_broken_version_is_reported(
    api: ControlPlane, engine: ScriptedEngine
) -> None:
    client = await api.tenant()
    first, second = await version(api, client, "a"), await version(api, client, "b")
    name = (await deploy(client, first, traffic={first: 50, second: 50}))["id"]
    users = [f"user-{number}" for number in range(CALLERS)]
    before = {user: await answering(client, name, user) for user in users}
    await traffic_of(api).work()
    shown = (await client.get(f"/v1/deployments/{name}")).json()
    assert [arm["health"]["state"] for arm in shown["versions"]] == ["ready", "ready"]
    assert sum(arm["answers"] for arm in shown["versions"]) == CALLERS
    assert sum(arm["prompt_tokens"] for arm in shown["versions"]) == 5 * CALLERS
    ratio = shown["sample_ratio"]
    assert CALLERS - 5 <= ratio["callers"] <= CALLERS  # some may share a bucket
    assert not ratio["mismatch"]

    await deploy(client, first, traffic={first: 50.01, second: 49.99})  # counts begin anew
    broken = [user for user in users if before[user] == second]
    for user in users:
        engine.begin([QuestionRefused(FAILED, "broken")] if user in broken else HELLO)
        body = {"model": name, "messages": HI, "user": user}
        asked = await client.post(URL, json=body)
        assert asked.status_code == (503 if user in broken else 200)
    await traffic_of(api).work()
    (shown,) = (await client.get("/v1/deployments")).json()["data"]
    assert [arm["failures"] for arm in shown["versions"]] == [0, len(broken)]
    assert shown["sample_ratio"]["second"] == 0
    assert shown["sample_ratio"]["mismatch"]


async def test_a_shadow_is_asked_and_its_answer_is_dropped(
    api: ControlPlane, engine: ScriptedEngine
) -> None:
    client = await api.tenant()
    first, shadow = await version(api, client, "a"), await version(api, client, "b")
    name = (await deploy(client, first, shadow={"model": shadow, "share": 100}))["id"]
    for _ in range(3):
        assert await answering(client, name, None) == first
        await traffic_of(api).settle()
    await traffic_of(api).work()
    asked = [question.asker.model for question in engine.asked if question.asker is not None]
    assert sorted(asked) == sorted([first, shadow] * 3)
    (listed,) = (await client.get("/v1/deployments")).json()["data"]
    counted = {
        arm["role"]: (arm["answers"], arm["completion_tokens"]) for arm in listed["versions"]
    }
    assert counted == {"first": (3, 6), "shadow": (3, 6)}
    assert listed["sample_ratio"] is None


async def test_a_rollback_takes_effect_with_its_answer(
    api: ControlPlane, engine: ScriptedEngine
) -> None:
    client = await api.tenant()
    first, second = await version(api, client, "line"), await version(api, client, "line2")
    await deploy(client, first)
    await deploy(client, second, expected=first, traffic={second: 99.5, first: 0.5})
    back = await client.post(f"/v1/models/{second}/rollback", json={"stage": "production"})
    assert back.json()["id"] == first
    asked = await answering(client, stage_of(first), "anybody")
    assert asked == first
    gone = await client.post(URL, json={"model": stage_of(second), "messages": HI})
    assert gone.status_code == 404
    ended = await client.delete(f"/v1/deployments/{stage_of(first)}")
    assert ended.json() == {"id": stage_of(first), "object": "deployment", "deleted": True}
    assert (await client.get("/v1/deployments")).json()["data"] == []
    assert (await client.get(f"/v1/deployments/{stage_of(first)}")).status_code == 404


@pytest.mark.parametrize(
    ("traffic", "param"),
    [
        ({"first": 70, "second": 20}, "traffic"),
        ({"second": 100}, "traffic"),
        ({"first": 99.999, "second": 0.001}, "traffic.first"),
        ({"first": -1, "second": 101}, "traffic.first"),
    ],
)
async def test_shares_that_do_not_add_up_are_400(
    api: ControlPlane, traffic: dict[str, float], param: str
) -> None:
    client = await api.tenant()
    names = {name: await version(api, client, name) for name in ("first", "second")}
    body = {
        "stage": "production",
        "traffic": {names[name]: share for name, share in traffic.items()},
    }
    refused = await client.post(f"/v1/models/{names['first']}/deploy", json=body)
    assert refused.status_code == 400, refused.text
    assert refused.json()["error"]["param"].startswith(param.partition(".")[0])
    assert (await client.get("/v1/deployments")).json()["data"] == []


async def test_unknown_blocked_and_other_tenants_models_are_refused(api: ControlPlane) -> None:
    client, other = await api.tenant(), await api.tenant()
    first, blocked = await version(api, client, "a"), await version(api, client, "b", "block")
    theirs = await version(api, other, "theirs")
    for model, status in ((blocked, 409), (theirs, 404), ("ft:tiny-llama:x::12345678", 404)):
        for path, body in (
            (first, {"traffic": {first: 50, model: 50}}),
            (first, {"shadow": {"model": model, "share": 1}}),
            (model, {}),
        ):
            refused = await client.post(
                f"/v1/models/{path}/deploy", json={"stage": "production", **body}
            )
            assert refused.status_code == status, refused.text
    pooled = {"stage": "staging", "serving_pool": "p"}
    wrong = await client.post(f"/v1/models/{first}/deploy", json=pooled)
    assert (wrong.status_code, wrong.json()["error"]["param"]) == (404, "serving_pool")


async def test_health_says_what_the_engine_says(api: ControlPlane, engine: ScriptedEngine) -> None:
    client = await api.tenant()
    name = (await deploy(client, await version(api, client, "a")))["id"]

    async def health() -> str:
        shown = (await client.get(f"/v1/deployments/{name}")).json()
        state: str = shown["versions"][0]["health"]["state"]
        return state

    assert await health() == "ready"
    assert engine.asked[-1].asker is None, "it is not billed"
    engine.replies = [QuestionRefused(FAILED, "broken")]
    assert await health() == "failed"
    engine.away = True
    assert await health() == "unavailable"
