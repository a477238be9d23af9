"""Another tenant's key over every route and id: nothing is there, and nothing tells it apart.

The routes come from the API's own document, so a new one is tested, or fails for want of a line.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from services.gateway.ports import Views, Where
from services.gateway.views.table import R, Table
from tests.unit.services.gateway.control_plane import BASE, ControlPlane
from tests.unit.services.gateway.models.test_routes import version

METHODS = ("get", "post", "delete", "put", "patch")
OPERATORS = "/v1/tenants"  # refused whatever tenant they name
BODIES: Mapping[tuple[str, str], Any] = {
    ("post", "/v1/models/{model_id}/promote"): {"stage": "staging"},
    ("post", "/v1/models/{model_id}/deploy"): {"stage": "staging"},
    ("post", "/adapters/{model_id}/promote"): {"stage": "staging"},
    ("post", "/v1/models/{model_id}/rollback"): {"stage": "staging"},
    ("post", "/v1/webhook_endpoints/{endpoint_id}"): {"name": "x"},
    ("post", "/v1/webhook_endpoints/{endpoint_id}/redeliver"): {"after": 0},
    ("post", "/v1/uploads/{upload_id}/complete"): {"part_ids": ["part_x"]},
    ("post", "/v1/fine_tuning/checkpoints/{checkpoint_id}/permissions"): {"project_ids": ["p"]},
}


@dataclass
class Spy:
    """Views that remember what was asked of them, without the values."""

    views: Views
    asked: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)

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
    """One of everything that belongs to a tenant, by the name of its place in a path."""

    ids: Mapping[str, str]


async def owned(api: ControlPlane, owner: httpx.AsyncClient) -> Owned:
    file = await api.upload(owner)
    await api.validated(owner, file["id"])
    job = await owner.post(
        "/v1/fine_tuning/jobs", json={"model": BASE.base_id, "training_file": file["id"]}
    )
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
    for created in (job, endpoint, upload):
        assert created.status_code == 200, created.text
    return Owned(
        {
            "file_id": file["id"],
            "job_id": job.json()["id"],
            "endpoint_id": endpoint.json()["id"],
            "upload_id": upload.json()["id"],
            "model_id": await version(api, owner, "mine"),
            "checkpoint_id": "ftckpt_nobody",
            "permission_id": "cp_nobody",
            "key_id": (await owner.get("/v1/keys/current")).json()["id"],
        }
    )


def operations(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for path, item in document["paths"].items():
        for method in METHODS:
            if method in item and "{" in path and not path.startswith(OPERATORS):
                yield method, path


async def asked(
    client: httpx.AsyncClient, spy: Spy, method: str, path: str, ids: Mapping[str, str]
) -> tuple[int, str, list[tuple[str, tuple[str, ...]]]]:
    """Status, body without the id, and what was looked up."""
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


async def test_nothing_of_another_tenant_is_there(
    api: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, other = await api.tenant(), await api.tenant()
    mine = await owned(api, owner)
    missing_ids = {name: f"{value[:-6]}000000" for name, value in mine.ids.items()}
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


async def test_another_tenants_file_is_no_training_file(api: ControlPlane) -> None:
    owner, other = await api.tenant(), await api.tenant()
    mine = await owned(api, owner)
    job = {"model": BASE.base_id, "training_file": mine.ids["file_id"]}
    for path in ("/v1/fine_tuning/jobs", "/v1/fine_tuning/jobs/estimate"):
        refused = await other.post(path, json=job)
        assert refused.status_code == 404
        assert refused.json()["error"]["param"] == "training_file"


async def test_a_list_does_not_begin_after_another_tenants_item(api: ControlPlane) -> None:
    owner, other = await api.tenant(), await api.tenant()
    mine = await owned(api, owner)
    for path, name in (("/v1/files", "file_id"), ("/v1/fine_tuning/jobs", "job_id")):
        assert (await other.get(path, params={"after": mine.ids[name]})).status_code == 404


async def test_operators_routes_say_the_same_of_every_tenant(api: ControlPlane) -> None:
    owner, other = await api.tenant(), await api.tenant()
    document = (await api.api.get("/openapi.json")).json()
    tenants = (owner.headers["x-tenant"], "nobody")
    for path, item in document["paths"].items():
        for method in METHODS:
            if path.startswith(OPERATORS) and method in item:
                shown = [path.format(tenant=name, key_id="key_x") for name in tenants]
                answers = [await other.request(method, url, json={}) for url in shown]
                assert {url.status_code for url in answers} == {403}, (method, path)
                assert answers[0].json() == answers[1].json()
