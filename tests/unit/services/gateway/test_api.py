"""All routes: responses match the OpenAPI document, and tenants are isolated."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from inspect import iscoroutinefunction
from math import inf
from typing import Any

import httpx
import pytest
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from starlette.routing import Match

from schemas.account import Announce, WebhookEvent
from schemas.topics import ACCOUNT
from services.gateway.accounts import key_routes as keys
from services.gateway.accounts import request_quotas
from services.gateway.accounts import tenant_routes as tenants
from services.gateway.accounts import webhook_routes as webhooks
from services.gateway.api import ALTERNATIVES, routes
from services.gateway.billing import invoice_routes as invoices
from services.gateway.billing import usage_routes as usage
from services.gateway.files import dataset_routes as datasets
from services.gateway.files import routes as files
from services.gateway.files import upload_routes as uploads
from services.gateway.jobs import checkpoint_routes as checkpoints
from services.gateway.jobs import event_routes as events
from services.gateway.jobs import plain_routes as plain
from services.gateway.jobs import routes as jobs
from services.gateway.jobs import submission_routes as submit
from services.gateway.models import release_routes as releases
from services.gateway.models import routes as models
from services.gateway.views.ports import Views, Where
from services.gateway.views.table import R, Table
from tests.unit.services.gateway.control_plane import BASE, ControlPlane
from tests.unit.services.gateway.jobs.test_checkpoint_routes import checkpoint_of_tenant
from tests.unit.services.gateway.jobs.test_event_routes import finished
from tests.unit.services.gateway.jobs.test_routes import ready
from tests.unit.services.gateway.models.test_routes import version
from tests.unit.services.gateway.sessions.sdk import Sdk

MONTH = f"{datetime.now(UTC):%Y-%m}"

# --- answers are what the document says, field by field -------------------------------------------


# in the order of the application: `estimate` before the ids of jobs, the rest of a path at last
MODULES = (
    *(files, datasets, uploads, submit, jobs, events, checkpoints, plain, releases, models),
    *(keys, tenants, webhooks, usage, invoices),
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
    """Names of the routes that were answered."""
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
    layers = {"target_modules": ["q_proj"], "modules_to_save": ["lm_head"]}
    body = {"model": BASE.base_id, "training_file": file_id, "lora": layers}
    job = (await client.post("/v1/fine_tuning/jobs", json={**body, "metadata": {"a": "b"}})).json()
    answers_about_jobs = (
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
        await over.get(f"{path}/statement"),
        await over.get("/v1/usage"),
        await over.get("/v1/invoices"),
        await over.get(f"/v1/invoices/{MONTH}-EUR"),
        await over.get(f"/v1/invoices/{MONTH}-EUR/lines"),
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
        await client.post(f"/v1/models/{model_id}/approve", json={"stage": "staging"}),
        await client.get(f"/v1/models/{model_id}/history"),
        await client.post("/v1/approval_rules", json={"stage": "staging", "required": 1}),
        await client.get("/v1/approval_rules"),
        await client.delete(f"/v1/files/{(await api.upload(client))['id']}"),
    )
    answers = (*answers_about_jobs, *await answers_about_accounts(api))
    return {expect_documented(answer) for answer in answers}


async def answers_about_accounts(api: ControlPlane) -> tuple[httpx.Response, ...]:
    client = await api.tenant()
    tenant = client.headers["x-tenant"]
    endpoint_created = await client.post(
        "/v1/webhook_endpoints", json={"url": "https://example.com/h"}
    )
    endpoint = f"/v1/webhook_endpoints/{endpoint_created.json()['id']}"
    announced = Announce(
        event=WebhookEvent(
            event_id="evt_1",
            event_type="fine_tuning.job.failed",
            object_id="ftjob-1",
            created_at=1_000,
        )
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


async def test_responses_match_the_openapi_document(api: ControlPlane) -> None:
    assert len(await every_answer(api)) >= 40


async def test_a_response_that_differs_from_the_document_is_detected(
    api: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await api.tenant()
    answer = await client.get("/v1/files")
    monkeypatch.setattr(answer, "json", lambda: {"object": "list", "data": [{"id": 1}]})
    with pytest.raises(AssertionError):
        expect_documented(answer)


# --- another tenant's key over every route and id -------------------------------------------------
# Another tenant's objects answer exactly like unknown ones. The routes come from the OpenAPI
# document, so that a new route is tested too, or fails because its parameters are not listed here.


METHODS = ("get", "post", "delete", "put", "patch")
# refused whatever they name
OPERATORS = ("/v1/tenants", "/v1/prices", "/v1/node", "/v1/bases/", "/v1/gate/benchmarks/")
# ask for a token in the place of a key
BY_TOKEN = ("/v1/nodes/{node_id}/enrol", "/v1/downloads/{ticket}")
BODIES: Mapping[tuple[str, str], Any] = {
    ("post", "/v1/fine_tuning/imports/{import_id}/jobs"): {"max_amount_micro": 1},
    ("post", "/v1/fine_tuning/imports/{import_id}/judgements"): {
        "judge": BASE.base_id,
        "pairs": [{"prompt": "?", "a": "1", "b": "2", "better": "a"}] * 20,
    },
    ("post", "/v1/sessions/{session_id}/versions"): {"name": "best"},
    ("post", "/v1/sessions/{session_id}/raise"): {"max_minutes": 1_000},
    ("post", "/v1/models/{model_id}/promote"): {"stage": "staging"},
    ("post", "/v1/models/{model_id}/deploy"): {"stage": "staging"},
    ("post", "/v1/serving_pools/{serving_pool_id}"): {"replicas": 1},
    ("post", "/adapters/{model_id}/promote"): {"stage": "staging"},
    ("post", "/v1/models/{model_id}/rollback"): {"stage": "staging"},
    ("post", "/v1/models/{model_id}/approve"): {"stage": "staging"},
    ("post", "/v1/models/{model_id}/quarantine"): {
        "quarantined": True,
        "reason": "it is wrong",
        "name": "Ada",
    },
    ("post", "/v1/webhook_endpoints/{endpoint_id}"): {"name": "x"},
    ("post", "/v1/webhook_endpoints/{endpoint_id}/confirm"): {"code": "c"},
    ("post", "/v1/webhook_endpoints/{endpoint_id}/redeliver"): {"after": 0},
    ("post", "/v1/uploads/{upload_id}/complete"): {"part_ids": ["part_x"]},
    ("post", "/v1/fine_tuning/checkpoints/{checkpoint_id}/permissions"): {"project_ids": ["p"]},
}


@dataclass
class Spy:
    """Views that record queries, without their values."""

    views: Views
    asked: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)

    async def sums(self, table: Table[R], where: Where, *args: Any, **options: Any) -> Any:
        self.asked.append((table.name, tuple(where)))
        return await self.views.sums(table, where, *args, **options)

    async def first(self, table: Table[R], where: Where) -> R | None:
        self.asked.append((table.name, tuple(where)))
        return await self.views.first(table, where)

    async def page(self, table: Table[R], where: Where, **options: Any) -> Any:
        self.asked.append((table.name, tuple(where)))
        return await self.views.page(table, where, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.views, name)


@dataclass(frozen=True)
class Owned:
    """Ids of one object of each kind of a tenant, by path parameter."""

    ids: Mapping[str, str]


async def owned(api: ControlPlane, owner: httpx.AsyncClient) -> Owned:
    file = await api.upload(owner)
    await api.validated(owner, file["id"])
    job = await owner.post(
        "/v1/fine_tuning/jobs", json={"model": BASE.base_id, "training_file": file["id"]}
    )
    tried = {"model": BASE.base_id, "training_file": file["id"], "lora": {"rank": 2}}
    sweep = await owner.post("/v1/sweeps", json={"job": tried, "parameters": {"rank": [4]}})
    endpoint = await owner.post("/v1/webhook_endpoints", json={"url": "https://example.com/h"})
    upload = await owner.post(
        "/v1/uploads",
        json={
            "filename": "rows.jsonl",
            "purpose": "fine-tune",
            "bytes": 10,
            "mime_type": "text/jsonl",
        },
    )
    pool = await owner.post("/v1/serving_pools", json={"model": BASE.base_id, "replicas": 0})
    rows = await owner.post(
        "/v1/files", data={"purpose": "batch"}, files={"file": ("rows.jsonl", b"{}\n")}
    )
    batch = await owner.post(
        "/v1/batches",
        json={
            "input_file_id": rows.json()["id"],
            "endpoint": "/v1/chat/completions",
            "completion_window": "24h",
        },
    )
    imported = await owner.post("/v1/imports", json={"key": "sk-1", "source": "together"})
    for created in (job, sweep, endpoint, upload, pool, batch, imported):
        assert created.status_code == 200, created.text
    return Owned(
        {
            "file_id": file["id"],
            "job_id": job.json()["id"],
            "sweep_id": sweep.json()["id"],
            "endpoint_id": endpoint.json()["id"],
            "upload_id": upload.json()["id"],
            "serving_pool_id": pool.json()["id"],
            "batch_id": batch.json()["id"],
            "import_id": imported.json()["id"],
            "model_id": await version(api, owner, "mine"),
            "name": "config.json",
            "step": "7777777",  # of the checkpoint of a model
            "checkpoint_id": "ftckpt_nobody",
            "sampler": "tinker://session-0123456789ab/sampler_weights/a-777777",  # of no tenant
            "permission_id": "cp_nobody",
            "budget_id": await budget(api, owner),
            "session_id": await Sdk(api, owner).model(),
            "base_id": await policy(owner),
            "invoice_id": "1999-01-EUR",  # every tenant has the months from its first on
            "key_id": (await owner.get("/v1/keys/current")).json()["id"],
        }
    )


async def policy(owner: httpx.AsyncClient) -> str:
    """A policy of the gate, which is known by its base model."""
    created = await owner.post("/v1/gate/policies", json={"base_model": BASE.base_id})
    assert created.status_code == 200, created.text
    return str(created.json()["id"])


async def budget(api: ControlPlane, owner: httpx.AsyncClient) -> str:
    """The budget of an API key: its id is not that of every tenant's budget."""
    path = f"/v1/tenants/{owner.headers['x-tenant']}/keys"
    key = (await api.api.post(path, json={"scopes": ["read", "budgets.write"]})).json()
    body = {"key_id": key["id"], "max_gpu_hours": 100}
    created = await api.client(key["key"]).post("/v1/budgets", json=body)
    assert created.status_code == 200, created.text
    return str(created.json()["id"])


def operations(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for path, item in document["paths"].items():
        for method in METHODS:
            if (
                path not in BY_TOKEN
                and method in item
                and "{" in path
                and not path.startswith(OPERATORS)
            ):
                yield method, path


async def asked(
    client: httpx.AsyncClient, spy: Spy, method: str, path: str, ids: Mapping[str, str]
) -> tuple[int, str, list[tuple[str, tuple[str, ...]]]]:
    """Status, body without the id, and the queries of a request."""
    spy.asked.clear()
    shown = path.format_map(ids)
    body = BODIES.get((method, path))
    if path.endswith("/parts"):
        answer = await client.request(method, shown, files={"data": ("part", b"0123456789")})
    else:
        answer = await client.request(method, shown, json=body)
    text = answer.text
    for name in ids.values():
        text = text.replace(name, "ID")
    return answer.status_code, text, list(spy.asked)


@pytest.mark.security
async def test_objects_of_another_tenant_answer_like_unknown_ones(
    api: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_quotas, "LIMIT_S", inf)  # how much a tenant may send is read once
    owner, other = await api.tenant(), await api.tenant()
    await other.get("/v1/files")
    mine = await owned(api, owner)
    missing_ids = {name: f"{value[:-6]}000000" for name, value in mine.ids.items()}
    missing_ids["invoice_id"] = "1998-01-EUR"  # a month, as that of the owner
    missing_ids["step"] = "8888888"
    spy = Spy(api.deps.views)
    monkeypatch.setitem(api.deps.__dict__, "views", spy)
    document = (await api.api.get("/openapi.json")).json()
    tested = 0
    for method, path in operations(document):
        foreign = await asked(other, spy, method, path, mine.ids)
        missing = await asked(other, spy, method, path, missing_ids)
        assert foreign[0] == 404, (method, path, foreign)
        assert foreign == missing, (method, path)
        tested += 1
    assert tested >= 20
    for path in ("/v1/files", "/v1/fine_tuning/jobs", "/v1/webhook_endpoints"):
        assert (await other.get(path)).json()["data"] == []


@pytest.mark.security
async def test_another_tenants_file_is_no_training_file(api: ControlPlane) -> None:
    owner, other = await api.tenant(), await api.tenant()
    mine = await owned(api, owner)
    job = {"model": BASE.base_id, "training_file": mine.ids["file_id"]}
    for path in ("/v1/fine_tuning/jobs", "/v1/fine_tuning/jobs/estimate"):
        refused = await other.post(path, json=job)
        assert refused.status_code == 404
        assert refused.json()["error"]["param"] == "training_file"


@pytest.mark.security
async def test_after_with_another_tenants_id_answers_404(api: ControlPlane) -> None:
    owner, other = await api.tenant(), await api.tenant()
    mine = await owned(api, owner)
    for path, name in (("/v1/files", "file_id"), ("/v1/fine_tuning/jobs", "job_id")):
        assert (await other.get(path, params={"after": mine.ids[name]})).status_code == 404


@pytest.mark.security
async def test_admin_routes_answer_403_for_every_tenant(api: ControlPlane) -> None:
    owner, other = await api.tenant(), await api.tenant()
    document = (await api.api.get("/openapi.json")).json()
    tenants = (owner.headers["x-tenant"], "nobody")
    for path, item in document["paths"].items():
        for method in METHODS:
            if path.startswith(OPERATORS) and path not in BY_TOKEN and method in item:
                ids = {"key_id": "key_x", "version": "2026-01", "node_id": "a", "base_id": "b"}
                shown = [path.format(tenant=name, name="mmlu", **ids) for name in tenants]
                answers = [await other.request(method, url, json={}) for url in shown]
                assert {url.status_code for url in answers} == {403}, (method, path)
                assert answers[0].json() == answers[1].json()


def test_no_dependency_of_a_route_waits_for_a_thread() -> None:
    """FastAPI runs plain functions and classes in a thread, for which a busy machine waits."""

    def calls(dependant: Dependant) -> Iterator[Callable[..., Any]]:
        for each in dependant.dependencies:
            assert each.call is not None
            yield each.call
            yield from calls(each)

    api_routes = [route for route in routes().routes if isinstance(route, APIRoute)]
    called = {call for route in (*api_routes, *ROUTES) for call in calls(route.dependant)}
    in_threads = {
        call
        for call in called
        if not iscoroutinefunction(call) and not iscoroutinefunction(type(call).__call__)
    }
    assert len(called) > 5
    assert not in_threads


# --- bad input of the first hour, with a twist ----------------------------------------------------

JOBS_PATH = "/v1/fine_tuning/jobs"
TWISTS: list[tuple[str, str, dict[str, Any], int, str]] = [
    # 01: a flag as text, where `dry_run=true` ended with a traceback
    ("POST", JOBS_PATH, {"dry_run": "true"}, 400, "dry_run: must be true or false"),
    # 02: the other bound of a budget
    ("POST", JOBS_PATH, {"budget": {"max_gpu_hours": 0.001}}, 400, "Raise the budget"),
    # 14: text at its limit with another field beyond, and a range in a second group
    (
        "POST",
        JOBS_PATH,
        {"suffix": "ü" * 65, "lora": {"rank": 257}, "training": {"n_epochs": 0}},
        400,
        "3 problems: suffix: must have at most 64 characters",
    ),
    ("POST", JOBS_PATH, {"metadata": {str(n): "x" for n in range(17)}}, 400, "at most 16 entries"),
    ("POST", JOBS_PATH, {"metadata": {"team": 7}}, 400, "metadata.team: must be text"),
    # low: a multiplier of the other sign, and one that JSON has no number for
    ("POST", JOBS_PATH, {"training": {"learning_rate_multiplier": -2}}, 400, "number above 0"),
    ("POST", JOBS_PATH, {"training": {"learning_rate_multiplier": "1e1"}}, 400, "number above 0"),
    # 22: a name that is nearly right, in a group that takes only its own
    ("POST", JOBS_PATH, {"lora": {"alfa": 8}}, 400, "lora.alfa: unknown; lora takes rank, alpha"),
    # 18: a month that is none, one that has not begun, sums by what there is not
    ("GET", "/v1/invoices?period=2026-13", {}, 400, "is not a month"),
    ("GET", "/v1/invoices?period=2999-12", {}, 400, "has not begun"),
    ("GET", f"/v1/invoices/{MONTH}-EUR/sums?group_by=tenant", {}, 400, "'tenant' is none of job"),
    ("GET", "/v1/usage?group_by=metadata", {}, 400, "metadata[NAME]"),
    # low: other capitals, and a part of OpenAI's API that has no prefix of its own
    ("POST", "/v1/Images/generations", {}, 404, "Check the URL for typos"),
    ("POST", "/v1/vector_stores/vs_1/files", {}, 404, "trains models of text"),
    # 17: an endpoint without events
    (
        "POST",
        "/v1/webhook_endpoints",
        {"url": "https://x.example/", "event_types": []},
        400,
        "event_types: must",
    ),
]


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "words"), TWISTS, ids=[str(n) for n in range(len(TWISTS))]
)
async def test_first_hour_twist(
    api: ControlPlane, method: str, path: str, body: dict[str, Any], status: int, words: str
) -> None:
    """The bad input of a first hour, each with one twist: refused with the place and the fix."""
    client, file_id = await ready(api)
    whole = {"model": "tiny-llama", "training_file": file_id} if path == JOBS_PATH else {}
    sent = {**whole, **body} if method == "POST" else None
    answer = await client.request(method, path, json=sent)
    assert answer.status_code == status, answer.text
    assert words in answer.json()["error"]["message"]
    assert (await client.get(JOBS_PATH)).json()["data"] == []


def test_every_alternative_has_a_path_prefix_and_a_sentence() -> None:
    for prefix, text in ALTERNATIVES.items():
        assert prefix.startswith("/v1/")
        assert text.endswith(".")
