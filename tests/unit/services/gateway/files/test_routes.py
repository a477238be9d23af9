"""Files over HTTP: uploaded, checked, listed and deleted, each by its tenant only."""

import hashlib
from typing import Any

import pytest

from schemas.dataset import CreateUpload, RegisterFile
from schemas.envelope import Message
from services.gateway.web.commands import CommandSender
from tests.unit.services.gateway.control_plane import ROW, ControlPlane
from tunery.runtime.store.abstract import CommandResult


async def test_an_upload_is_stored_with_its_hash_and_listed(api: ControlPlane) -> None:
    client = await api.tenant()
    file = await api.upload(client)
    body = ROW * 20
    assert file["object"] == "file"
    assert file["bytes"] == len(body)
    assert file["sha256"] == hashlib.sha256(body).hexdigest()
    assert file["filename"] == "rows.jsonl"
    assert file["purpose"] == "fine-tune"
    assert file["status"] == "uploaded"
    listed = (await client.get("/v1/files")).json()
    assert [item["id"] for item in listed["data"]] == [file["id"]]
    content = await client.get(f"/v1/files/{file['id']}/content")
    assert content.content == body
    assert (await client.get(f"/v1/files/{file['id']}/validation")).json()["status"] == "pending"


@pytest.mark.parametrize(
    ("plan", "most", "niceness"), [("free", 100_000, 15), ("premium", 10_000_000, 0)]
)
async def test_rows_are_limited_by_plan_however_they_come(
    api: ControlPlane, monkeypatch: pytest.MonkeyPatch, plan: str, most: int, niceness: int
) -> None:
    client = await api.tenant(plan=plan)
    sent: list[Message] = []
    decide = CommandSender.decide

    async def noted(
        self: CommandSender, stream: Any, tenant: str, body: Message, **more: Any
    ) -> CommandResult:
        sent.append(body)
        return await decide(self, stream, tenant, body, **more)

    monkeypatch.setattr(CommandSender, "decide", noted)
    await api.upload(client)
    body = {"bytes": len(ROW), "filename": "a", "mime_type": "b", "purpose": "fine-tune"}
    assert (await client.post("/v1/uploads", json=body)).status_code == 200
    (registered,) = (item for item in sent if isinstance(item, RegisterFile))
    (upload,) = (item for item in sent if isinstance(item, CreateUpload))
    for terms in (registered.terms, upload.terms.file):
        assert (terms.rows_max, terms.niceness) == (most, niceness)


async def test_the_purpose_may_come_after_the_file(api: ControlPlane) -> None:
    client = await api.tenant()
    answer = await client.post(
        "/v1/files",
        files=[("file", ("späte.jsonl", ROW * 10)), ("purpose", (None, "fine-tune"))],
    )
    assert answer.status_code == 200, answer.text
    assert answer.json()["filename"] == "späte.jsonl"


async def test_a_validated_file_has_token_counts_and_a_report(api: ControlPlane) -> None:
    client = await api.tenant()
    file = await api.upload(client)
    shown = await api.validated(client, file["id"])
    assert shown["status"] == "processed"
    assert shown["validation"]["tokens"] == {"tiny-llama": 20_000}
    report = (await client.get(f"/v1/files/{file['id']}/validation")).json()
    assert report["accepted"] is True
    assert report["report"] == {"verdict": "accepted"}
    assert "report_blob" not in report


async def test_a_rejected_file_has_a_report_with_row_numbers(api: ControlPlane) -> None:
    client = await api.tenant()
    file = await api.upload(client)
    shown = await api.validated(client, file["id"], accepted=False)
    assert shown["status"] == "error"
    assert f"/v1/files/{file['id']}/validation" in shown["status_details"]


async def test_all_problems_of_a_form_are_reported_at_once(api: ControlPlane) -> None:
    client = await api.tenant()
    answer = await client.post("/v1/files", data={"purpose": "vision"}, files={"other": b"x"})
    error = answer.json()["error"]
    assert answer.status_code == 400
    assert error["param"] == "file"
    assert "file: is required" in error["message"]
    assert "purpose: 'vision' is not supported here; use fine-tune, batch" in error["message"]


async def test_first_hour_22_a_wrong_field_is_refused_although_the_file_is_too_large(
    api: ControlPlane,
) -> None:
    client = await api.tenant()
    answer = await client.post(
        "/v1/files", data={"purpose": "vision"}, files={"file": ("a.jsonl", b"x" * 100_001)}
    )
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "purpose")


async def test_empty_and_oversized_files_are_refused(api: ControlPlane) -> None:
    client = await api.tenant()
    empty = await client.post(
        "/v1/files", data={"purpose": "fine-tune"}, files={"file": ("a.jsonl", b"")}
    )
    assert empty.status_code == 400
    assert "file: is empty" in empty.json()["error"]["message"]
    large = await client.post(
        "/v1/files", data={"purpose": "fine-tune"}, files={"file": ("a.jsonl", b"x" * 100_001)}
    )
    assert large.status_code == 413
    assert large.json()["error"]["code"] == "file_too_large"
    assert (await client.get("/v1/files")).json()["data"] == []


async def test_an_upload_that_breaks_off_is_refused(api: ControlPlane) -> None:
    client = await api.tenant()
    body = (
        b'--b\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nfine-tune\r\n'
        b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\nhalf a fi'
    )
    headers = {"content-type": "multipart/form-data; boundary=b"}
    answer = await client.post("/v1/files", content=body, headers=headers)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "incomplete_upload"


async def test_a_body_that_is_not_a_form_is_refused(api: ControlPlane) -> None:
    client = await api.tenant()
    answer = await client.post("/v1/files", json={"purpose": "fine-tune"})
    assert answer.status_code == 400
    assert "multipart/form-data" in answer.json()["error"]["message"]
    headers = {"content-type": "multipart/form-data; boundary=b"}
    broken = await client.post("/v1/files", content=b"nonsense", headers=headers)
    assert broken.status_code == 400


async def test_deleting_removes_the_file(api: ControlPlane) -> None:
    client = await api.tenant()
    file = await api.upload(client)
    answer = await client.delete(f"/v1/files/{file['id']}")
    assert answer.json() == {"id": file["id"], "object": "file", "deleted": True}
    assert (await client.get(f"/v1/files/{file['id']}")).status_code == 404
    again = await client.delete(f"/v1/files/{file['id']}")
    assert again.status_code == 404


async def test_another_tenants_file_does_not_exist(api: ControlPlane) -> None:
    owner, other = await api.tenant(), await api.tenant()
    file = await api.upload(owner)
    unknown = await other.get("/v1/files/file-unknown")
    for path in ("", "/content", "/validation"):
        answer = await other.get(f"/v1/files/{file['id']}{path}")
        assert answer.status_code == 404
        expected = unknown.json()["error"]["message"].replace("file-unknown", file["id"])
        assert answer.json()["error"]["message"] == expected
    assert (await other.delete(f"/v1/files/{file['id']}")).status_code == 404
    assert (await owner.get(f"/v1/files/{file['id']}")).status_code == 200


async def test_pages_go_by_the_id_of_the_last_item(api: ControlPlane) -> None:
    client = await api.tenant()
    created = [(await api.upload(client))["id"] for _ in range(5)]
    seen: list[str] = []
    after = None
    for _ in range(3):
        params = {"limit": 2} if after is None else {"limit": 2, "after": after}
        answer = (await client.get("/v1/files", params=params)).json()
        seen += [item["id"] for item in answer["data"]]
        after = answer["last_id"]
        assert answer["has_more"] is (len(seen) < 5)
    assert seen == created[::-1]
    upwards = (await client.get("/v1/files", params={"order": "asc"})).json()
    assert [item["id"] for item in upwards["data"]] == created
    lost = await client.get("/v1/files", params={"after": "file-unknown"})
    assert lost.status_code == 404
    assert lost.json()["error"]["param"] == "after"
