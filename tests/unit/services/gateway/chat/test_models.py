"""Lookup of models by name: base models, and the tenant's own versions."""

import pytest

from schemas.training import BlobFile
from tests.unit.services.gateway.chat.scripted_engine import ScriptedEngine
from tests.unit.services.gateway.chat.test_routes import HI, URL, engine
from tests.unit.services.gateway.control_plane import BASE, ControlPlane
from tests.unit.services.gateway.jobs.test_checkpoint_routes import NAMES, checkpoint_of_tenant
from tests.unit.services.gateway.models.test_routes import version

__all__ = ["engine"]  # a fixture


async def test_a_version_is_asked_with_its_files_and_only_by_its_tenant(
    api: ControlPlane, engine: ScriptedEngine
) -> None:
    owner, other = await api.tenant(), await api.tenant()
    model_id = await version(api, owner, "asked")
    body = {"model": model_id, "messages": HI}
    answer = await owner.post(URL, json=body)
    assert answer.status_code == 200, answer.text
    assert answer.json()["model"] == model_id
    assert {file.name for file in engine.asked[0].model.adapter} != set()
    refused = await other.post(URL, json=body)
    assert refused.status_code == 404
    assert refused.json()["error"]["code"] == "model_not_found"


@pytest.mark.parametrize("name", ["gpt-4o", "ft:tiny-llama:x::12345678"])
async def test_an_unknown_model_is_404(
    api: ControlPlane, engine: ScriptedEngine, name: str
) -> None:
    answer = await (await api.tenant()).post(URL, json={"model": name, "messages": HI})
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")
    assert engine.asked == []


async def test_a_key_for_some_models_asks_only_those(
    api: ControlPlane, engine: ScriptedEngine
) -> None:
    tenant = (await api.tenant()).headers["x-tenant"]
    path = f"/v1/tenants/{tenant}/keys"
    created = await api.api.post(path, json={"name": "other", "models": ["another-base"]})
    client = api.client(created.json()["key"], tenant)
    answer = await client.post(URL, json={"model": BASE.base_id, "messages": HI})
    assert answer.status_code == 403
    assert engine.asked == []


async def test_a_version_in_quarantine_is_403(api: ControlPlane, engine: ScriptedEngine) -> None:
    owner = await api.tenant()
    blocked = await version(api, owner, "blocked", verdict="block")
    answer = await owner.post(URL, json={"model": blocked, "messages": HI})
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "model_quarantined")
    assert engine.asked == []


async def test_a_suspended_tenant_gets_no_answers(
    api: ControlPlane, engine: ScriptedEngine
) -> None:
    client = await api.tenant()
    tenant = client.headers["x-tenant"]
    assert (await api.api.post(f"/v1/tenants/{tenant}/suspend")).status_code == 200
    answer = await client.post(URL, json={"model": BASE.base_id, "messages": HI})
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "tenant_suspended")
    assert engine.asked == []


async def test_a_whole_model_is_refused_with_what_serves_it(
    api: ControlPlane, engine: ScriptedEngine
) -> None:
    owner = await api.tenant()
    weights = BlobFile(name="model.safetensors", blob="t/x/w", sha256="ef" * 32, bytes=20)
    whole = await version(api, owner, "whole", files=(weights,))
    answer = await owner.post(URL, json={"model": whole, "messages": HI})
    assert answer.status_code == 400
    assert "tunery model download" in answer.json()["error"]["message"]
    assert engine.asked == []


async def test_first_hour2_u5_a_checkpoint_answers_its_tenant_while_its_files_are_kept(
    api: ControlPlane, engine: ScriptedEngine
) -> None:
    """By the name that OpenAI's API has for it, also while its job is still running."""
    checkpoint, other = await checkpoint_of_tenant(api), await api.tenant()
    body = {"model": checkpoint.name, "messages": HI}
    answer = await checkpoint.owner.post(URL, json=body)
    assert answer.status_code == 200, answer.text
    assert answer.json()["model"] == checkpoint.name
    model = engine.asked[0].model
    assert [file.name for file in model.adapter] == [*NAMES[:2]]
    assert (model.base_id, model.base_sha256) == (BASE.base_id, BASE.sha256)
    assert (await other.post(URL, json=body)).status_code == 404
    for file in model.adapter:
        await api.world.blobs.delete(file.blob)
    gone = await checkpoint.owner.post(URL, json=body)
    assert (gone.status_code, "not kept any more" in gone.text) == (404, True)
    assert len(engine.asked) == 1


async def test_first_hour2_u5_a_checkpoint_with_files_of_another_tenant_does_not_answer(
    api: ControlPlane, engine: ScriptedEngine
) -> None:
    checkpoint = await checkpoint_of_tenant(api, of="another")
    answer = await checkpoint.owner.post(URL, json={"model": checkpoint.name, "messages": HI})
    assert (answer.status_code, engine.asked) == (404, [])


async def test_a_stage_answers_with_the_version_that_holds_it(
    api: ControlPlane, engine: ScriptedEngine
) -> None:
    owner, other = await api.tenant(), await api.tenant()
    first, second = await version(api, owner, "line"), await version(api, owner, "else")
    production = f"{first.rpartition(':')[0]}:production"
    body = {"model": production, "messages": HI}
    empty = await owner.post(URL, json=body)
    assert (empty.status_code, empty.json()["error"]["code"]) == (404, "model_not_found")
    for name, expected in ((first, None), (second, first)):  # one series in these tests
        promotion = {"stage": "production", "expected": expected}
        promoted = await owner.post(f"/v1/models/{name}/promote", json=promotion)
        assert promoted.status_code == 200, promoted.text
        asked = await owner.post(
            URL, json={**body, "model": f"{name.rpartition(':')[0]}:production"}
        )
        assert asked.json()["model"] == name
    assert (await owner.post(URL, json=body)).status_code == 404, "another line is in production"
    assert (await other.post(URL, json=body)).status_code == 404
    shown = await owner.get(f"/v1/models/{second.rpartition(':')[0]}:production")
    assert shown.json()["id"] == second
    asker = engine.asked[-1].asker
    assert asker is not None
    assert asker.model == second


async def test_a_reward_model_is_refused_because_it_writes_nothing(
    api: ControlPlane, engine: ScriptedEngine
) -> None:
    owner = await api.tenant()
    model_id = await version(api, owner, "rewards", method="reward")
    answer = await owner.post(URL, json={"model": model_id, "messages": HI})
    assert answer.status_code == 400
    assert "says what an answer is worth, and writes none" in answer.json()["error"]["message"]
    assert engine.asked == []
