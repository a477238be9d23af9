"""Files of base models, for tenants where the operator shares them."""

from pathlib import Path

from tests.unit.services.gateway.control_plane import ControlPlane
from tests.unit.services.gateway.models.test_base_folders import a_base


async def test_first_hour_13_a_tenant_downloads_a_shared_base(
    api: ControlPlane, tmp_path: Path
) -> None:
    client, folder = await api.tenant(), a_base(tmp_path / "shared")
    (folder / "private.txt").write_text("beside the model")
    body = {"id": "org/shared", "path": str(folder), "shared": False, "source": "Org/Shared"}
    await api.api.post("/v1/bases", json=body)
    path = "/v1/models/org/shared/files"
    refused = await client.get(path)
    assert refused.status_code == 403
    assert "It is Org/Shared at its hub" in refused.json()["error"]["message"]
    assert (await client.get(f"{path}/config.json")).status_code == 403
    await api.api.post("/v1/bases", json={**body, "shared": True})
    listed = (await client.get(path)).json()["data"]
    assert [file["id"] for file in listed] == ["config.json", "model.safetensors", "tokenizer.json"]
    for file in listed:
        content = (await client.get(f"{path}/{file['id']}")).content
        assert content == (folder / file["id"]).read_bytes()
        assert len(content) == file["bytes"]
    for name in ("private.txt", "..%2Fconfig.json", "none"):
        assert (await client.get(f"{path}/{name}")).status_code == 404
    (folder / "config.json").unlink()
    assert (await client.get(path)).status_code == 503


async def test_first_hour_13_fine_tuned_models_are_no_base(api: ControlPlane) -> None:
    client = await api.tenant()
    assert (await client.get("/v1/models/nothing/files")).status_code == 404
