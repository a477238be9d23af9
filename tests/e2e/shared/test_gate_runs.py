"""An adapter of elsewhere on the real stack: imported, gated, promoted, gated again, deployed."""

import hashlib
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from services.gateway.models.base_folders import layers_of
from tests.bases import tiny_base
from tests.e2e.shared.guests import Guest

pytestmark = pytest.mark.timeout(900)
WEIGHTS = "adapter_model.safetensors"
LAYERS = ("q_proj", "v_proj", "down_proj")


def foreign_adapter(folder: Path) -> None:
    """An adapter with PEFT's names and settings, of the base model of the stack."""
    import torch
    from peft import LoraConfig
    from safetensors.torch import save_file

    random, rank = torch.Generator().manual_seed(7), 4
    weights: dict[str, torch.Tensor] = {}
    for name, shape in layers_of(tiny_base().dir).items():
        layer = name.removesuffix(".weight")
        if layer.endswith(LAYERS):
            sides = {"A": (rank, shape[1]), "B": (shape[0], rank)}
            for side, size in sides.items():
                values = 1e-3 * torch.randn(size, generator=random)
                weights[f"base_model.model.{layer}.lora_{side}.weight"] = values
    assert weights
    settings = LoraConfig(r=rank, target_modules=[*LAYERS], task_type="CAUSAL_LM")
    settings.base_model_name_or_path = "/somewhere/else"
    settings.save_pretrained(folder)
    save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})


async def imported(home: Guest, folder: Path, **fields: str) -> httpx.Response:
    form = {"model": home.base, "config": (folder / "adapter_config.json").read_text(), **fields}
    files = {"file": (WEIGHTS, (folder / WEIGHTS).read_bytes())}
    return await home.api.call("POST", "/models/import", data=form, files=files)


async def test_gate_judges_an_imported_adapter_before_anybody_promotes_it_and_again_later(
    home: Guest, tmp_path: Path
) -> None:
    foreign_adapter(tmp_path)
    reply = await imported(home, tmp_path, suffix="theirs", validation_file=home.file_id)
    assert reply.status_code == httpx.codes.CREATED, reply.text
    job = await home.api.ended(reply.json()["id"])
    assert job["status"] == "succeeded", job["error"]
    model_id = job["fine_tuned_model"]
    assert ":theirs:" in model_id
    assert job["gate"]["verdict"] in ("pass", "inconclusive")
    assert job["gate"]["adapter"]["loss"] is not None, "the rows of the tenant were read"
    model: dict[str, Any] = await home.api.get(f"/models/{model_id}")
    assert (model["imported"], model["lineage"]["steps"]) == (True, 0)
    assert model["lineage"]["scores_sha256"]
    listed = await home.api.get(f"/models/{model_id}/adapter")
    async with httpx.AsyncClient() as storage:
        weights = next(file for file in listed["files"] if file["name"] == WEIGHTS)
        content = (await storage.get(weights["url"])).content
    assert hashlib.sha256(content).hexdigest() == weights["sha256"]
    assert content == (tmp_path / WEIGHTS).read_bytes(), "what was imported is what is published"
    assert {"model.sig", "lineage.intoto.json"} <= {file["name"] for file in listed["files"]}

    again = await home.api.call("POST", f"/models/{model_id}/gate")
    assert again.status_code == httpx.codes.CREATED, again.text
    second = await home.api.ended(again.json()["id"])
    assert second["status"] == "succeeded", second["error"]
    assert second["fine_tuned_model"] == model_id
    assert second["gate"]["adapter"] == job["gate"]["adapter"], "the same rows, the same scores"
    shown = await home.api.get(f"/models/{model_id}")
    assert shown["gate_job_id"] == second["id"]
    assert shown["job_id"] == job["id"]
    changes = [row["change"] for row in (await home.api.get(f"/models/{model_id}/history"))["data"]]
    assert changes == ["published", "gate"]
    promoted = await home.api.call("POST", f"/models/{model_id}/promote", json={"stage": "staging"})
    assert promoted.is_success, promoted.text
    cost = await home.bill(second["id"])
    assert cost["net_gpu_ms"] > 0, "an evaluation is billed as one"


async def test_gate_runs_again_once_the_files_of_a_base_model_have_changed(
    home: Guest, tmp_path: Path
) -> None:
    foreign_adapter(tmp_path / "adapter")
    base = tmp_path / "base"
    base.mkdir()
    for file in tiny_base().dir.iterdir():
        if file.is_file():
            (base / file.name).write_bytes(file.read_bytes())
    added = await home.operator.call("POST", "/bases", json={"id": "drifting", "path": str(base)})
    assert added.is_success, added.text
    form = {"model": "drifting", "config": (tmp_path / "adapter/adapter_config.json").read_text()}
    files = {"file": (WEIGHTS, (tmp_path / "adapter" / WEIGHTS).read_bytes())}
    reply = await home.api.call("POST", "/models/import", data=form, files=files)
    job = await home.api.ended(reply.json()["id"])
    model_id = job["fine_tuned_model"]
    changed = json.loads((base / "config.json").read_text()) | {"rms_norm_eps": 2e-5}
    (base / "config.json").write_text(json.dumps(changed))
    path = f"/models/{model_id}/promote"
    refused = await home.api.call("POST", path, json={"stage": "production"})
    assert refused.status_code == httpx.codes.CONFLICT
    assert refused.json()["error"]["code"] == "base_changed"
    again = await home.api.call("POST", f"/models/{model_id}/gate")
    assert again.is_success, again.text
    second = await home.api.ended(again.json()["id"])
    assert second["status"] == "succeeded", second["error"]
    assert second["provenance"]["base_model"] != job["provenance"]["base_model"]
    promoted = await home.api.call("POST", path, json={"stage": "production"})
    assert promoted.is_success, promoted.text
