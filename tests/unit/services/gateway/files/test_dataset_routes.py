"""Named datasets over HTTP: each upload under a name is its next version, and stays what it is."""

import asyncio
from typing import Any

import httpx
import pytest

from schemas.model import Lineage, RecordPublished, RegisterVersion, VersionTerms
from schemas.topics import MODEL
from tests.repo.metrics import ROOT
from tests.unit.services.gateway.control_plane import BASE, ROW, SETTLE_S_MAX, ControlPlane
from tests.unit.services.gateway.models.test_routes import FILE


async def upload(client: httpx.AsyncClient, name: str, rows: int = 20) -> dict[str, Any]:
    answer = await client.post(
        "/v1/files",
        data={"purpose": "fine-tune", "dataset": name},
        files={"file": ("rows.jsonl", ROW * rows)},
    )
    assert answer.status_code == 200, answer.text
    answered: dict[str, Any] = answer.json()
    return answered


async def test_each_upload_under_a_name_is_its_next_version(api: ControlPlane) -> None:
    client, other = await api.tenant(), await api.tenant()
    plain = await api.upload(client)
    named = [await upload(client, name) for name in ("faq", "Faq", "faq")]
    foreign = await upload(other, "faq")
    assert plain["dataset"] is None
    assert [item["dataset"] for item in named] == ["faq@1", "Faq@1", "faq@2"]
    assert foreign["dataset"] == "faq@1"
    listed = (await client.get("/v1/files", params={"dataset": "faq"})).json()["data"]
    assert [item["id"] for item in listed] == [named[2]["id"], named[0]["id"]]
    assert (await client.get("/v1/files/faq@2")).json() == named[2]
    assert (await client.get("/v1/files/faq@2/content")).content == ROW * 20
    assert (await client.get("/v1/files/faq@2/validation")).json()["id"] == named[2]["id"]
    names = (await client.get("/v1/datasets")).json()["data"]
    assert [(item["id"], item["latest_version"]) for item in names] == [("faq", 2), ("Faq", 1)]
    assert names[0]["latest_file"] == named[2]["id"]
    assert (await other.get("/v1/datasets")).json()["data"][0]["latest_file"] == foreign["id"]
    for unknown in ("faq@3", "faq@0", "faq@99999999999", "faq@", "faq"):
        assert (await client.get(f"/v1/files/{unknown}")).status_code == 404


async def test_version_numbers_are_never_reused(api: ControlPlane) -> None:
    client = await api.tenant()
    for _ in range(2):
        await upload(client, "faq")
    assert (await client.delete("/v1/files/faq@2")).json()["deleted"] is True
    assert (await client.get("/v1/files/faq@2")).status_code == 404
    assert (await upload(client, "faq"))["dataset"] == "faq@3"


async def test_a_name_is_checked(api: ControlPlane) -> None:
    client = await api.tenant()
    for name in ("", "-x", "a b", "a@1", "a/b", "x" * 65):
        answer = await client.post(
            "/v1/files",
            data={"purpose": "fine-tune", "dataset": name},
            files={"file": ("rows.jsonl", ROW)},
        )
        error = answer.json()["error"]
        assert (answer.status_code, error["param"]) == (400, "dataset")
        body = {"bytes": 1, "filename": "a", "mime_type": "b", "purpose": "fine-tune"}
        answer = await client.post("/v1/uploads", json={**body, "dataset": name})
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "dataset")


async def test_an_upload_in_parts_has_a_name_too(api: ControlPlane) -> None:
    client = await api.tenant()
    body = {"bytes": len(ROW), "filename": "a", "mime_type": "b", "purpose": "fine-tune"}
    upload_id = (await client.post("/v1/uploads", json={**body, "dataset": "faq"})).json()["id"]
    await upload(client, "faq")  # the number is given when the file is there
    part = (await client.post(f"/v1/uploads/{upload_id}/parts", files={"data": ROW})).json()
    done = await client.post(f"/v1/uploads/{upload_id}/complete", json={"part_ids": [part["id"]]})
    assert done.json()["file"]["dataset"] == "faq@2"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/fine_tuning/jobs", {"model": "tiny-llama", "training_file": "faq@1"}),
        ("/v1/jobs", {"base_model": "tiny-llama", "dataset_uri": "faq@1"}),
        ("/v1/jobs", {"base_model": "tiny-llama", "dataset_uri": "tunery://files/faq@1"}),
        (
            "/v1/fine-tuning/jobs",
            {"base_model": "tiny-llama", "training_file": "faq@1", "validation_file": "faq@2"},
        ),
    ],
)
async def test_a_job_takes_versions_by_name(
    api: ControlPlane, path: str, body: dict[str, Any]
) -> None:
    client = await api.tenant()
    first, second = [await upload(client, "faq") for _ in range(2)]
    for file in (first, second):
        await api.validated(client, file["id"])
    job = (await client.post(path, json=body)).json()
    assert job["training_file"] == first["id"]
    assert job["validation_file"] == (second["id"] if "validation_file" in body else None)
    plain = (await client.get(f"/v1/jobs/{job['id']}")).json()
    assert plain["training_dataset"] == "faq@1"
    assert plain["training_file_version"] == f"sha256:{first['sha256']}"


async def test_the_error_for_an_unknown_version_quotes_its_name(api: ControlPlane) -> None:
    client = await api.tenant()
    body = {"model": "tiny-llama", "training_file": "faq@7"}
    answer = await client.post("/v1/fine_tuning/jobs", json=body)
    assert answer.status_code == 404
    assert answer.json()["error"]["message"] == "No such File object: faq@7"


async def deletion(client: httpx.AsyncClient, until: str) -> httpx.Response:
    """Delete repeatedly until the response contains this text."""
    async with asyncio.timeout(SETTLE_S_MAX):
        while until not in (answer := await client.delete("/v1/files/faq@1")).text:
            assert answer.status_code == 409
            await asyncio.sleep(0.01)
    return answer


async def test_first_hour2_u20_files_of_a_model_are_deleted_after_it_as_the_page_says(
    api: ControlPlane,
) -> None:
    client = await api.tenant()
    tenant, file = client.headers["x-tenant"], await upload(client, "faq")
    await api.validated(client, file["id"])
    body = {"model": "tiny-llama", "training_file": "faq@1"}
    job_id = (await client.post("/v1/fine_tuning/jobs", json=body)).json()["id"]
    model_id = f"ft:tiny-llama:{tenant}::12345678"
    in_use = await client.delete("/v1/files/faq@1")
    assert in_use.json()["error"]["code"] == "file_in_use"
    await api.send(MODEL, tenant, registered(model_id, job_id))
    await api.send(MODEL, tenant, RecordPublished(model_id=model_id, files=(FILE,)))
    await api.until(client, f"/v1/models/{model_id}", lambda answered: "id" in answered)
    await client.post(f"/v1/fine_tuning/jobs/{job_id}/cancel")
    refused = await deletion(client, "lineage")
    error = refused.json()["error"]
    assert (refused.status_code, error["code"]) == (409, "file_in_use")
    assert f"DELETE /v1/models/{model_id}?erase=true. " in error["message"]
    erased = await client.delete(f"/v1/models/{model_id}", params={"erase": "true"})
    page = (ROOT / "docs/how-to/from-openai.md").read_text(encoding="utf-8")
    assert 'extra_query={"erase": "true"}' in page  # what openai sends as this parameter
    assert erased.status_code == 200
    assert (await deletion(client, "deleted")).json()["id"] == file["id"]


def registered(model_id: str, job_id: str) -> RegisterVersion:
    lineage = Lineage(
        job_id=job_id,
        base_id=BASE.base_id,
        base_sha256=BASE.sha256,
        dataset_version="v",
        training_sha256="ab" * 32,
        config_sha256="ab" * 32,
        steps=10,
        verdict="pass",
        scores_sha256="ab" * 32,
    )
    return RegisterVersion(
        adapter=(FILE,), terms=VersionTerms(model_id=model_id, series="series", lineage=lineage)
    )


async def test_two_versions_are_compared_by_name(api: ControlPlane) -> None:
    client, other = await api.tenant(), await api.tenant()
    for rows in (("a", "b"), ("b", "c")):
        body = b"".join(ROW.replace(b"Hi", row.encode()) for row in rows)
        form = {"purpose": "fine-tune", "dataset": "faq"}
        await client.post("/v1/files", data=form, files={"file": ("rows.jsonl", body)})
    answer = await client.get("/v1/files/faq@2/diff", params={"before": "faq@1"})
    answered = answer.json()
    assert answer.status_code == 200, answer.text
    assert (answered["before"]["id"], answered["after"]["id"]) == ("faq@1", "faq@2")
    assert (answered["same"], answered["added"], answered["removed"]) == (1, [2], [1])
    assert answered["after"]["sha256"] == (await client.get("/v1/files/faq@2")).json()["sha256"]
    assert (await client.get("/v1/files/faq@2/diff")).json() == answered
    first = await client.get("/v1/files/faq@1/diff")
    assert (first.status_code, first.json()["error"]["param"]) == (400, "before")
    for before, after in (("faq@1", "faq@3"), ("faq@3", "faq@1")):
        missing = await client.get(f"/v1/files/{after}/diff", params={"before": before})
        assert missing.status_code == 404
    foreign = await other.get("/v1/files/faq@2/diff", params={"before": "faq@1"})
    assert foreign.status_code == 404
