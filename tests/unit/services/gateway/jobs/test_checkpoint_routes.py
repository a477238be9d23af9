"""Permissions to download checkpoints: granted, revoked, and revealing nothing else."""

import asyncio
from dataclasses import dataclass

import httpx
from msgspec.structs import replace

from schemas.job import RecordCheckpoint, RecordDataset, RecordGranted, RecordStarted
from schemas.topics import JOB
from schemas.training import AttemptStart, BlobFile
from simulator.control_plane.samples import PREPARED
from tests.unit.services.gateway.control_plane import ControlPlane
from tests.unit.services.gateway.jobs.job_events import CHECKPOINT
from tests.unit.services.gateway.jobs.test_routes import ready, submit

NAMES = ("adapter_model.safetensors", "adapter_config.json", "optimizer.safetensors")


@dataclass
class CheckpointOfTenant:
    owner: httpx.AsyncClient
    id: str
    name: str
    url: str


async def checkpoint_of_tenant(api: ControlPlane, of: str = "") -> CheckpointOfTenant:
    """A running job's checkpoint. of: whose files it names."""
    owner, file_id = await ready(api)
    return await checkpoint_of_job(api, owner, (await submit(owner, file_id)).json()["id"], of)


async def checkpoint_of_job(
    api: ControlPlane, owner: httpx.AsyncClient, job_id: str, of: str = ""
) -> CheckpointOfTenant:
    """A checkpoint, as agent and pool report it. of: whose files it names."""
    tenant, path = owner.headers["x-tenant"], f"/v1/fine_tuning/jobs/{job_id}"
    files = tuple(
        BlobFile(name=name, blob=f"t/{of or tenant}/checkpoints/{name}", sha256="cd" * 32, bytes=10)
        for name in NAMES
    )
    for file in files:
        await api.world.blobs.put(file.blob, b"0123456789")
    start = AttemptStart(loaded=None, loaded_step=0, skipped=(), total_steps=20)
    started = RecordStarted(job_id=job_id, attempt=1, start=start)
    await api.send(JOB, tenant, RecordDataset(job_id=job_id, prepared=PREPARED))
    await api.until(owner, path, lambda job: job["status"] == "queued")
    for fact in (
        RecordGranted(job_id=job_id, attempt=1, node_ids=("a",)),
        started,
        RecordCheckpoint(job_id=job_id, checkpoint=replace(CHECKPOINT, files=files)),
    ):
        await api.send(JOB, tenant, fact)
    listed_checkpoints = await api.until(
        owner, f"{path}/checkpoints", lambda listed: listed["data"]
    )
    shown = listed_checkpoints["data"][0]
    url = f"/v1/fine_tuning/checkpoints/{shown['id']}"
    return CheckpointOfTenant(owner, shown["id"], shown["fine_tuned_model_checkpoint"], url)


async def test_a_permission_allows_the_download_of_the_adapter_only(api: ControlPlane) -> None:
    checkpoint, friend, stranger = (
        await checkpoint_of_tenant(api),
        await api.tenant(),
        await api.tenant(),
    )
    for client in (friend, stranger):
        assert (await client.get(f"{checkpoint.url}/download")).status_code == 404
    body = {"project_ids": [friend.headers["x-tenant"], "tenant-nobody-has"]}
    shared = await checkpoint.owner.post(f"{checkpoint.url}/permissions", json=body)
    assert shared.status_code == 200, shared.text
    first, second = shared.json()["data"]
    assert (first["object"], first["project_id"]) == (
        "checkpoint.permission",
        body["project_ids"][0],
    )
    assert second["project_id"] == "tenant-nobody-has"
    fetched = (await friend.get(f"{checkpoint.url}/download")).json()
    assert [file["name"] for file in fetched["files"]] == list(NAMES[:2])
    assert fetched["step_number"] == CHECKPOINT.step
    assert (await stranger.get(f"{checkpoint.url}/download")).status_code == 404
    assert (await friend.get(f"{checkpoint.url}/permissions")).status_code == 404
    url = f"{checkpoint.url}/permissions/{first['id']}"
    assert (await friend.delete(url)).status_code == 404
    gone = await checkpoint.owner.delete(url)
    assert gone.json() == {"id": first["id"], "object": "checkpoint.permission", "deleted": True}
    assert (await friend.get(f"{checkpoint.url}/download")).status_code == 404
    assert (await checkpoint.owner.delete(url)).status_code == 404


async def test_security_l5_a_permission_does_not_wait_for_a_tenant_of_that_name(
    api: ControlPlane,
) -> None:
    """Whoever registered the name later got the checkpoint."""
    checkpoint = await checkpoint_of_tenant(api)
    later = f"tenant-{api.tenants + 1}"
    url = f"{checkpoint.url}/permissions"
    (early,) = (await checkpoint.owner.post(url, json={"project_ids": [later]})).json()["data"]
    await asyncio.sleep(0.002)
    newcomer = await api.tenant()
    assert newcomer.headers["x-tenant"] == later
    assert (await newcomer.get(f"{checkpoint.url}/download")).status_code == 404
    await checkpoint.owner.delete(f"{url}/{early['id']}")
    await checkpoint.owner.post(url, json={"project_ids": [later]})
    assert (await newcomer.get(f"{checkpoint.url}/download")).status_code == 200


async def test_permissions_are_listed_in_pages_and_given_once(api: ControlPlane) -> None:
    checkpoint = await checkpoint_of_tenant(api)
    owner, url = checkpoint.owner, f"{checkpoint.url}/permissions"
    await owner.post(url, json={"project_ids": ["a", "b"]})
    again = (await owner.post(url, json={"project_ids": ["b", "c", "c"]})).json()
    assert [permission["project_id"] for permission in again["data"]] == ["b", "c"]
    listed = (await owner.get(url, params={"order": "ascending"})).json()
    assert sorted(permission["project_id"] for permission in listed["data"]) == ["a", "b", "c"]
    page = (await owner.get(url, params={"limit": 2})).json()
    assert page["has_more"] is True
    rest = (await owner.get(url, params={"limit": 2, "after": page["last_id"]})).json()
    shown = {permission["project_id"] for permission in (*page["data"], *rest["data"])}
    assert shown == {"a", "b", "c"}
    only = (await owner.get(url, params={"project_id": "c"})).json()
    assert [permission["project_id"] for permission in only["data"]] == ["c"]


async def test_a_checkpoint_is_known_by_its_name_as_a_model(api: ControlPlane) -> None:
    checkpoint = await checkpoint_of_tenant(api)
    by_name = f"/v1/fine_tuning/checkpoints/{checkpoint.name}/download"
    fetched = (await checkpoint.owner.get(by_name)).json()
    assert fetched["id"] == checkpoint.id
    wrong = by_name.replace("step-6", "step-7")
    assert (await checkpoint.owner.get(wrong)).status_code == 404


async def test_security_c1_files_of_another_tenant_are_not_handed_out(api: ControlPlane) -> None:
    """An agent named another tenant's rows in a checkpoint, which then were downloaded."""
    checkpoint = await checkpoint_of_tenant(api, of="another")
    assert (await checkpoint.owner.get(f"{checkpoint.url}/download")).status_code == 404


async def test_download_of_deleted_checkpoint_files_answers_404(api: ControlPlane) -> None:
    checkpoint = await checkpoint_of_tenant(api)
    tenant = checkpoint.owner.headers["x-tenant"]
    for name in NAMES:
        await api.world.blobs.delete(f"t/{tenant}/checkpoints/{name}")
    answer = await checkpoint.owner.get(f"{checkpoint.url}/download")
    assert answer.status_code == 404
    assert "not kept any more" in answer.json()["error"]["message"]


async def test_first_hour_12_the_name_of_a_checkpoint_is_that_of_a_model(
    api: ControlPlane,
) -> None:
    checkpoint, stranger = await checkpoint_of_tenant(api), await api.tenant()
    shown = (await checkpoint.owner.get(f"/v1/models/{checkpoint.name}")).json()
    assert (shown["id"], shown["type"], shown["checkpoint_id"], shown["step_number"]) == (
        checkpoint.name,
        "checkpoint",
        checkpoint.id,
        CHECKPOINT.step,
    )
    assert (shown["object"], shown["parent"]) == ("model", "tiny-llama")
    by_name = (await checkpoint.owner.get(f"/v1/models/{checkpoint.name}/adapter")).json()
    by_id = (await checkpoint.owner.get(f"{checkpoint.url}/download")).json()
    assert [file["name"] for file in by_name["files"]] == [file["name"] for file in by_id["files"]]
    for path in (checkpoint.name, f"{checkpoint.name}/adapter", f"{checkpoint.name}9"):
        assert (await stranger.get(f"/v1/models/{path}")).status_code == 404
    assert (await checkpoint.owner.get(f"/v1/models/{checkpoint.name}9")).status_code == 404
