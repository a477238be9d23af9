"""Previews over HTTP."""

from contextlib import ExitStack

from services.gateway.plan_limits import PLAN_LIMITS
from tests.unit.services.gateway.control_plane import ControlPlane
from tests.unit.services.gateway.jobs.domain.test_starts import first_job
from tests.unit.services.gateway.jobs.test_routes import ready
from tests.unit.services.gateway.models.test_routes import version


async def test_a_preview_needs_an_own_file_and_a_base_with_a_tokenizer(
    api: ControlPlane,
) -> None:
    client, file_id = await ready(api)
    body = {"model": "tiny-llama", "training_file": file_id}
    answer = await client.post("/v1/fine_tuning/preview", json=body)
    assert answer.status_code == 400  # this base model has no folder
    assert answer.json()["error"]["param"] == "model"
    assert "tokenizer.json" in answer.json()["error"]["message"]
    other = await api.tenant()
    assert (await other.post("/v1/fine_tuning/preview", json=body)).status_code == 404
    unknown = {**body, "model": "nothing"}
    assert (await client.post("/v1/fine_tuning/preview", json=unknown)).status_code == 404


async def test_first_hour_a_preview_takes_what_a_training_begins_with(api: ControlPlane) -> None:
    """`ft:` names, which submissions take, were unknown to it."""
    client, file_id, job = await first_job(api)
    model_id = await version(api, client, "first", job_id=job["id"])
    body = {"model": model_id, "training_file": file_id}
    answer = await client.post("/v1/fine_tuning/preview", json=body)
    assert answer.status_code == 400  # known; its base model has no folder here
    assert "tokenizer.json" in answer.json()["error"]["message"]
    other, its_file = await ready(api)
    refused = await other.post("/v1/fine_tuning/preview", json={**body, "training_file": its_file})
    assert refused.status_code == 404


async def test_a_tenant_at_its_limit_is_refused_before_anything_is_looked_up(
    api: ControlPlane,
) -> None:
    """M1: a refusal that costs queries is paid for by the other tenants."""
    client = await api.tenant(plan="free")
    tenant, most = client.headers["x-tenant"], PLAN_LIMITS["free"].previews_max
    body = {"model": "nothing", "training_file": "nothing"}
    with ExitStack() as asked:
        for _ in range(most):
            asked.enter_context(api.deps.previews.admit(tenant, most))
        for answer in (
            await client.post("/v1/fine_tuning/preview", json=body),
            await client.get("/v1/files/nothing/diff"),
        ):
            assert answer.status_code == 429, answer.text
            assert "previews_max" in answer.json()["error"]["message"]
    assert (await client.post("/v1/fine_tuning/preview", json=body)).status_code == 404
