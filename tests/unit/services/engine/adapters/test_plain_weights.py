"""Files as PEFT reads them: verified, nothing beside safetensors, and refused by name."""

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from schemas.training import ADAPTER_FILES, BlobFile
from services.engine.adapters.plain_weights import PlainWeights
from services.engine.adapters.weights import with_plain_scale
from services.engine.ports import Refusal
from tests.unit.services.engine.adapters.test_weights import base_folder, model
from tunery.runtime.blobs.abstract import BlobCorrupt
from tunery.runtime.blobs.memory import MemoryBlobs
from tunery.work.engine import STALE_BASE, UNSUPPORTED


async def uploaded(blobs: MemoryBlobs, name: str = "a", **config: Any) -> tuple[BlobFile, ...]:
    """An adapter whose bytes are those of its name."""
    contents = {"adapter_model.safetensors": name.encode(), "adapter_config.json": b""}
    contents["adapter_config.json"] = json.dumps({"r": 4, **config}).encode()
    files = []
    for file, data in contents.items():
        await blobs.put(f"t/{name}/{file}", data)
        digest = sha256(data).hexdigest()
        files.append(BlobFile(name=file, blob=f"t/{name}/{file}", sha256=digest, bytes=len(data)))
    return tuple(files)


async def test_an_adapter_has_its_two_files_in_a_folder_of_its_own(tmp_path: Path) -> None:
    blobs, base = MemoryBlobs(), base_folder(tmp_path / "base")
    weights = PlainWeights(blobs, tmp_path / "engine", 4)
    files = await uploaded(blobs)
    record = BlobFile(name="lineage.json", blob="t/none", sha256="ab" * 32, bytes=1)
    fetched = await weights.fetch(model(base, (*files, record)))
    assert fetched.adapter is not None
    assert {path.name for path in fetched.adapter.iterdir()} == {*ADAPTER_FILES}
    assert "modeling_own.py" not in {path.name for path in fetched.base.iterdir()}
    assert fetched.folder == base
    other = await weights.fetch(model(base, await uploaded(blobs, "b")))
    assert other.adapter != fetched.adapter
    assert (await weights.fetch(model(base, files))).adapter == fetched.adapter


async def test_what_is_not_as_it_was_recorded_is_refused(tmp_path: Path) -> None:
    blobs, base = MemoryBlobs(), base_folder(tmp_path / "base")
    weights = PlainWeights(blobs, tmp_path / "engine", 4)
    files = await uploaded(blobs)
    await blobs.delete(files[0].blob)
    await blobs.put(files[0].blob, b"x")
    added = model(base, files)
    with pytest.raises(BlobCorrupt):
        await weights.fetch(added)
    (base / "model.safetensors").write_bytes(b"others")
    with pytest.raises(Refusal) as refused:
        await weights.fetch(added)
    assert refused.value.code == STALE_BASE
    assert not [*(tmp_path / "engine").glob("*.adapter")]


async def test_options_that_the_engine_cannot_serve_are_named(tmp_path: Path) -> None:
    blobs, base = MemoryBlobs(), base_folder(tmp_path / "base")
    weights = PlainWeights(blobs, tmp_path / "engine", 4, refused=("use_dora",))
    for number, option in enumerate(("use_dora", "layer_replication")):
        files = await uploaded(blobs, str(number), **{option: [1]})
        with pytest.raises(Refusal) as refused:
            await weights.fetch(model(base, files))
        assert refused.value.code == UNSUPPORTED
        assert option in refused.value.message


async def test_the_adapters_that_were_used_last_are_kept(tmp_path: Path) -> None:
    blobs, base = MemoryBlobs(), base_folder(tmp_path / "base")
    weights = PlainWeights(blobs, tmp_path / "engine", 2)
    folders = []
    for name in "abc":
        fetched = await weights.fetch(model(base, await uploaded(blobs, name)))
        folders.append(fetched.adapter)
    assert [folder for folder in folders if folder is not None and folder.exists()] == folders[1:]


async def test_a_configuration_is_rewritten_for_the_engine(tmp_path: Path) -> None:
    blobs, base = MemoryBlobs(), base_folder(tmp_path / "base")
    weights = PlainWeights(blobs, tmp_path / "data" / "engine", 4, rewrite=with_plain_scale)
    files = await uploaded(blobs, use_rslora=True, lora_alpha=8)
    fetched = await weights.fetch(model(base, files))
    assert fetched.adapter is not None
    config = json.loads((fetched.adapter / "adapter_config.json").read_bytes())
    assert (config["use_rslora"], config["lora_alpha"]) == (False, 16)
    with pytest.raises(Refusal):
        await weights.fetch(model(base, await uploaded(blobs, "b", use_dora=True)))
