"""Answers are what the document says they are, field by field."""

from typing import Any

import httpx
import pytest
from fastapi.routing import APIRoute
from starlette.routing import Match

from schemas.account import Announce
from schemas.topics import ACCOUNT
from services.gateway.accounts import key_routes as keys
from services.gateway.accounts import tenant_routes as tenants
from services.gateway.accounts import webhook_routes as webhooks
from services.gateway.files import dataset_routes as datasets
from services.gateway.files import routes as files
from services.gateway.files import upload_routes as uploads
from services.gateway.jobs import checkpoint_routes as checkpoints
from services.gateway.jobs import event_routes as events
from services.gateway.jobs import plain_routes as plain
from services.gateway.jobs import routes as jobs
from services.gateway.jobs import submission_routes as submit
from services.gateway.models import routes as models
from tests.unit.services.gateway.control_plane import BASE, ControlPlane
from tests.unit.services.gateway.jobs.test_checkpoint_routes import checkpoint_of_tenant
from tests.unit.services.gateway.jobs.test_event_routes import finished
from tests.unit.services.gateway.jobs.test_routes import ready
from tests.unit.services.gateway.models.test_routes import version

# in the order of the application: `estimate` before the ids of jobs, the rest of a path at last
MODULES = (
    *(files, datasets, uploads, submit, jobs, events, checkpoints, plain, models),
    *(keys, tenants, webhooks),
)
ROUTES = [
    api_route
    for module in MODULES
    for api_route in module.router.routes
    if isinstance(api_route, APIRoute)
]


def expect_documented(answer: httpx.Response) -> str:
    """The name of the route that answered, after its model took the body."""
    assert answer.is_success, answer.text
    request = answer.request
    scope = {"type": "http", "method": request.method, "path": request.url.path}
    for route in ROUTES:
        if route.matches(scope)[0] is Match.FULL:
            documented = route.response_fields.get(answer.status_code) or route.response_field
            assert documented is not None
            _, wrong = documented.validate(answer.json())
            assert not wrong, (route.name, wrong)
            return route.name
    raise AssertionError(f"no route for {request.url}")


async def every_answer(api: ControlPlane) -> set[str]:
    """Names of the routes that were asked."""
    client, file_id = await ready(api)
    over, path = await finished(api)
    checkpoint = await checkpoint_of_tenant(api)
    model_id = await version(api, client, "shown")
    upload: dict[str, Any] = (
        await client.post(
            "/v1/uploads",
            json={"bytes": 1, "filename": "a", "mime_type": "b", "purpose": "fine-tune"},
        )
    ).json()
    body = {"model": BASE.base_id, "training_file": file_id}
    job = (await client.post("/v1/fine_tuning/jobs", json={**body, "metadata": {"a": "b"}})).json()
    asked = (
        await client.get("/v1/files"),
        await client.get(f"/v1/files/{file_id}"),
        await client.get(f"/v1/files/{file_id}/validation"),
        await client.get(f"/v1/files/{file_id}/diff", params={"before": file_id}),
        await client.get("/v1/datasets"),
        await client.get(f"/v1/uploads/{upload['id']}"),
        await client.post(f"/v1/uploads/{upload['id']}/parts", files={"data": b"x"}),
        await client.post(f"/v1/uploads/{upload['id']}/cancel"),
        await client.post("/v1/fine_tuning/jobs", json=body),
        await client.post("/v1/fine_tuning/jobs", json={**body, "dry_run": True}),
        await client.post("/v1/fine_tuning/jobs/estimate", json=body),
        await client.get("/v1/fine_tuning/jobs"),
        await client.get(f"/v1/fine_tuning/jobs/{job['id']}"),
        await over.get(path),
        await over.get(f"{path}/events", params={"limit": 100}),
        await over.get(f"{path}/metrics"),
        await over.get(f"{path}/logs"),
        await checkpoint.owner.get("/v1/fine_tuning/jobs"),
        await checkpoint.owner.get("/v1/jobs"),
        await checkpoint.owner.post(f"{checkpoint.url}/permissions", json={"project_ids": ["a"]}),
        await checkpoint.owner.get(f"{checkpoint.url}/permissions"),
        await checkpoint.owner.get(f"{checkpoint.url}/download"),
        await client.get(f"/v1/jobs/{job['id']}"),
        await over.get("/v1/fine-tuning/jobs"),
        await client.get("/v1/models"),
        await client.get("/v1/bases"),
        await client.get(f"/v1/models/{model_id}"),
        await client.get(f"/v1/models/{model_id}/adapter"),
        await client.post(f"/v1/models/{model_id}/promote", json={"stage": "staging"}),
        await client.delete(f"/v1/files/{(await api.upload(client))['id']}"),
    )
    answers = (*asked, *await answers_about_accounts(api))
    return {expect_documented(answer) for answer in answers}


async def answers_about_accounts(api: ControlPlane) -> tuple[httpx.Response, ...]:
    client = await api.tenant()
    tenant = client.headers["x-tenant"]
    endpoint_created = await client.post(
        "/v1/webhook_endpoints", json={"url": "https://example.com/h"}
    )
    endpoint = f"/v1/webhook_endpoints/{endpoint_created.json()['id']}"
    announced = Announce(
        event_id="evt_1",
        event_type="fine_tuning.job.failed",
        object_id="ftjob-1",
        created_at=1_000,
    )
    await api.send(ACCOUNT, tenant, announced)
    await api.until(client, f"{endpoint}/deliveries", lambda deliveries: deliveries["data"])
    return (
        endpoint_created,
        await client.get("/v1/webhook_endpoints"),
        await client.get(endpoint),
        await client.post(endpoint, json={"name": "b"}),
        await client.post(f"{endpoint}/rotate_secret"),
        await client.get(f"{endpoint}/deliveries"),
        await client.post(f"{endpoint}/redeliver", json={"after": 0, "only_failed": False}),
        await client.delete(endpoint),
        await client.get("/v1/webhook_event_types"),
        await client.get("/v1/keys"),
        await client.get("/v1/keys/current"),
        await client.post("/v1/keys/current/rotate"),
        await api.api.get("/v1/tenants"),
        await api.api.get(f"/v1/tenants/{tenant}"),
        await api.api.post("/v1/tenants", json={"id": "documented"}),
        await api.api.post("/v1/tenants/documented/keys", json={}),
        await api.api.get(f"/v1/tenants/{tenant}/keys"),
    )


async def test_answers_are_what_the_document_says(api: ControlPlane) -> None:
    assert len(await every_answer(api)) >= 40


async def test_an_answer_that_is_not_is_seen(
    api: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await api.tenant()
    answer = await client.get("/v1/files")
    monkeypatch.setattr(answer, "json", lambda: {"object": "list", "data": [{"id": 1}]})
    with pytest.raises(AssertionError):
        expect_documented(answer)
