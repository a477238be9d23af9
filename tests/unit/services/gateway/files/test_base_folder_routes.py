"""A base model out of uploaded files: only an operator, only what one is read from."""

import shutil
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.unit.services.gateway.control_plane import ROW, ControlPlane
from tests.unit.services.gateway.models.test_base_folders import a_base
from tunery.platform.blobs.base_files import base_files, hash_base


async def upload(client: httpx.AsyncClient, name: str, content: bytes) -> str:
    """The id of a file that was uploaded as one of a base model."""
    terms = {"bytes": len(content), "filename": name, "mime_type": "x/y", "purpose": "base-model"}
    created = await client.post("/v1/uploads", json=terms)
    assert created.status_code == 200, created.text
    url = f"/v1/uploads/{created.json()['id']}"
    part = (await client.post(f"{url}/parts", files={"data": (name, content)})).json()
    done = await client.post(f"{url}/complete", json={"part_ids": [part["id"]]})
    file: dict[str, Any] = done.json()["file"]
    assert (file["purpose"], file["status"]) == ("base-model", "processed")
    return str(file["id"])


async def uploaded(client: httpx.AsyncClient, folder: Path) -> dict[str, str]:
    """Ids by name of the files of a base model."""
    paths = base_files(folder)
    return {path.name: await upload(client, path.name, path.read_bytes()) for path in paths}


@pytest.fixture(name="operator")
def with_bases(api: ControlPlane, tmp_path: Path) -> httpx.AsyncClient:
    object.__setattr__(api.deps, "bases_dir", tmp_path / "bases")
    return api.api


async def test_first_hour_s03_a_base_is_added_from_an_upload(
    operator: httpx.AsyncClient, tmp_path: Path
) -> None:
    origin = a_base(tmp_path / "origin")
    body = {"name": "smol", "files": await uploaded(operator, origin)}
    created_folder = await operator.post("/v1/bases/folders", json=body)
    assert created_folder.status_code == 201, created_folder.text
    folder = Path(created_folder.json()["path"])
    assert (folder.parent, folder.name[:5]) == (tmp_path / "bases", "smol-")
    assert hash_base(folder) == hash_base(origin)
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o644}
    again = await operator.post("/v1/bases/folders", json=body)
    assert again.json() == created_folder.json()
    added = await operator.post("/v1/bases", json={"id": "smol", "path": str(folder)})
    assert added.json()["sha256"] == hash_base(origin)


async def test_other_files_are_no_base_model(operator: httpx.AsyncClient, tmp_path: Path) -> None:
    files = await uploaded(operator, a_base(tmp_path / "origin"))
    config = {"config.json": files["config.json"]}
    weights = next(name for name in files if name.endswith(".safetensors"))
    cases = (
        (config, "has config.json and *.safetensors"),
        ({weights: files[weights]}, "has config.json and *.safetensors"),
        ({**files, "pytorch_model.bin": "file-1"}, "pytorch_model.bin is no file of a base model"),
        ({**files, "modeling_smol.py": "file-1"}, "modeling_smol.py is no file of a base model"),
        ({**files, "../config.json": "file-1"}, "files"),
        ({**files, weights: "file-none"}, "No such File object: file-none"),
    )
    for named, message in cases:
        answer = await operator.post("/v1/bases/folders", json={"name": "x", "files": named})
        assert answer.status_code in (400, 404)
        assert message in answer.json()["error"]["message"]
    assert not (tmp_path / "bases").exists()


async def test_only_an_operator_uploads_a_base_model(
    api: ControlPlane, operator: httpx.AsyncClient, tmp_path: Path
) -> None:
    client = await api.tenant()
    terms = {"bytes": 1, "filename": "a", "mime_type": "b", "purpose": "base-model"}
    assert (await client.post("/v1/uploads", json=terms)).status_code == 403
    body = {"name": "x", "files": {"config.json": "file-1"}}
    assert (await client.post("/v1/bases/folders", json=body)).status_code == 403
    rows = {"file": ("rows.jsonl", ROW * 20)}
    file = (await operator.post("/v1/files", data={"purpose": "fine-tune"}, files=rows)).json()
    files = await uploaded(operator, a_base(tmp_path / "origin")) | {"config.json": file["id"]}
    answer = await operator.post("/v1/bases/folders", json={"name": "x", "files": files})
    assert "upload it with 'base-model'" in answer.json()["error"]["message"]


async def test_files_that_cannot_be_kept_are_refused(
    operator: httpx.AsyncClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = await uploaded(operator, a_base(tmp_path / "origin"))
    usage = "services.gateway.files.base_folder_routes.shutil.disk_usage"
    monkeypatch.setattr(usage, lambda _: type("Usage", (), {"free": 7}))
    answer = await operator.post("/v1/bases/folders", json={"name": "x", "files": files})
    assert answer.status_code == 400
    assert answer.json()["error"]["message"].endswith("has 7 free")
    monkeypatch.undo()
    shutil.rmtree(tmp_path / "bases")
    (tmp_path / "bases").write_text("a file, where the folder should be")
    answer = await operator.post("/v1/bases/folders", json={"name": "y", "files": files})
    assert answer.json()["error"]["message"].endswith("set TUNERY_GATEWAY_BASES_DIR")
