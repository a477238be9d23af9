"""Files in parts: in parallel, in any order, complete or not at all; and files that expire."""

import asyncio
import hashlib
from typing import Any

import httpx

from tests.unit.services.gateway.control_plane import ROW, ControlPlane

BODY = ROW * 30
DECLARED = {
    "bytes": len(BODY),
    "filename": "rows.jsonl",
    "mime_type": "application/jsonl",
    "purpose": "fine-tune",
}


async def begun(client: httpx.AsyncClient, **changed: Any) -> dict[str, Any]:
    answer = await client.post("/v1/uploads", json={**DECLARED, **changed})
    assert answer.status_code == 200, answer.text
    answered: dict[str, Any] = answer.json()
    return answered


async def part(client: httpx.AsyncClient, upload_id: str, data: bytes) -> httpx.Response:
    return await client.post(f"/v1/uploads/{upload_id}/parts", files={"data": ("blob", data)})


async def test_parts_in_parallel_become_one_file(api: ControlPlane) -> None:
    client = await api.tenant()
    upload = await begun(client)
    assert upload["object"] == "upload"
    assert upload["status"] == "pending"
    assert upload["file"] is None
    assert upload["expires_at"] == upload["created_at"] + 3_600
    pieces = [BODY[start : start + 500] for start in range(0, len(BODY), 500)]
    sent = await asyncio.gather(*(part(client, upload["id"], piece) for piece in pieces))
    parts = [answer.json() for answer in sent]
    assert {item["object"] for item in parts} == {"upload.part"}
    assert {item["upload_id"] for item in parts} == {upload["id"]}
    body = {
        "part_ids": [item["id"] for item in parts],
        "md5": hashlib.md5(BODY, usedforsecurity=False).hexdigest().upper(),
    }
    done = await client.post(f"/v1/uploads/{upload['id']}/complete", json=body)
    assert done.status_code == 200, done.text
    assert done.json()["status"] == "completed"
    file = done.json()["file"]
    assert file["bytes"] == len(BODY)
    assert file["filename"] == "rows.jsonl"
    assert file["sha256"] == hashlib.sha256(BODY).hexdigest()
    content = await client.get(f"/v1/files/{file['id']}/content")
    assert content.content == BODY
    again = await client.post(f"/v1/uploads/{upload['id']}/complete", json=body)
    assert again.json() == done.json()
    late = await part(client, upload["id"], b"x")
    assert late.status_code == 409
    assert late.headers["x-should-retry"] == "false"


async def test_an_upload_with_a_wrong_size_or_md5_creates_no_file(api: ControlPlane) -> None:
    client = await api.tenant()
    upload = await begun(client)
    sent = (await part(client, upload["id"], BODY[:-1])).json()
    url = f"/v1/uploads/{upload['id']}/complete"
    short = await client.post(url, json={"part_ids": [sent["id"]]})
    assert short.status_code == 400
    assert f"{len(BODY) - 1} bytes, {len(BODY)} were declared" in short.json()["error"]["message"]
    unknown = await client.post(url, json={"part_ids": ["part_x"]})
    assert "unknown: part_x" in unknown.json()["error"]["message"]
    rest = (await part(client, upload["id"], BODY[-1:])).json()
    ids = [sent["id"], rest["id"]]
    wrong = await client.post(url, json={"part_ids": ids, "md5": "0" * 32})
    assert wrong.status_code == 400
    assert wrong.json()["error"]["param"] == "md5"
    assert (await client.get("/v1/files")).json()["data"] == []
    good = await client.post(url, json={"part_ids": ids})
    assert good.json()["file"]["bytes"] == len(BODY)


async def test_a_cancelled_upload_takes_no_more_parts(api: ControlPlane) -> None:
    client = await api.tenant()
    upload = await begun(client)
    url = f"/v1/uploads/{upload['id']}"
    for _ in range(2):  # the SDK may repeat it
        gone = await client.post(f"{url}/cancel", headers={"content-type": "application/json"})
        assert gone.json()["status"] == "cancelled"
    assert (await part(client, upload["id"], b"x")).status_code == 409
    other = await api.tenant()
    assert (await other.get(url)).status_code == 404
    assert (await part(other, upload["id"], b"x")).status_code == 404
    assert (await other.post(f"{url}/cancel")).status_code == 404


async def test_invalid_uploads_are_refused(api: ControlPlane) -> None:
    client = await api.tenant()
    refusals: dict[str, dict[str, Any]] = {
        "bytes": {"bytes": 2**50},
        "purpose": {"purpose": "vision"},
        "expires_after.seconds": {"expires_after": {"anchor": "created_at", "seconds": 5}},
    }
    for param, changed in refusals.items():
        answer = await client.post("/v1/uploads", json={**DECLARED, **changed})
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == param
    upload = await begun(client)
    empty = await part(client, upload["id"], b"")
    assert empty.json()["error"]["param"] == "data"


async def test_a_file_shows_when_it_expires(api: ControlPlane) -> None:
    client = await api.tenant()
    fields = {
        "purpose": "fine-tune",
        "expires_after[anchor]": "created_at",
        "expires_after[seconds]": "3600",
    }
    created = await client.post("/v1/files", data=fields, files={"file": ("a.jsonl", BODY)})
    assert created.status_code == 200, created.text
    assert created.json()["expires_at"] == created.json()["created_at"] + 3_600
    upload = await begun(client, expires_after={"anchor": "created_at", "seconds": 7_200})
    sent = (await part(client, upload["id"], BODY)).json()
    url = f"/v1/uploads/{upload['id']}/complete"
    file = (await client.post(url, json={"part_ids": [sent["id"]]})).json()["file"]
    assert file["expires_at"] == file["created_at"] + 7_200
    for wrong in ("59", "x", "-3600", "99999999", "٣٦٠٠"):
        data = {**fields, "expires_after[seconds]": wrong}
        answer = await client.post("/v1/files", data=data, files={"file": ("a.jsonl", BODY)})
        assert answer.status_code == 400
        assert "3600…2592000" in answer.json()["error"]["message"]
