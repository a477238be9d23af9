"""Exports of a downloaded adapter: files that llama.cpp answers from, and artifacts of OCI."""

import json
import shutil
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.bases import tiny_base
from tunery.cli._model_exports import ARTIFACT, DOCUMENT, GGUF, SETTINGS, WEIGHTS
from tunery.cli.main import main


def exported(folder: Path, target: Path, *options: str) -> Result:
    return CliRunner().invoke(main, ["model", "export", str(folder), str(target), *options])


def an_adapter(folder: Path) -> Path:
    folder.mkdir()
    (folder / "adapter_model.safetensors").write_bytes(b"weights")
    (folder / "adapter_config.json").write_text("{}")
    (folder / "README.md").write_text("# A card")
    (folder / "base").mkdir()
    return folder


def read_blob(layout: Path, described: dict[str, Any]) -> bytes:
    """What a descriptor names, as every tool checks it."""
    digest = str(described["digest"]).removeprefix("sha256:")
    data: bytes = (layout / "blobs" / "sha256" / digest).read_bytes()
    assert (sha256(data).hexdigest(), len(data)) == (digest, described["size"])
    return data


def test_an_artifact_has_the_files_as_they_are(tmp_path: Path) -> None:
    folder, layout = an_adapter(tmp_path / "adapter"), tmp_path / "artifact"
    done = exported(folder, layout, "--format", "oci", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads((layout / "oci-layout").read_bytes()) == {"imageLayoutVersion": "1.0.0"}
    (described,) = json.loads((layout / "index.json").read_bytes())["manifests"]
    assert described["digest"] == json.loads(done.output)["digest"]
    manifest = json.loads(read_blob(layout, described))
    assert manifest["artifactType"] == ARTIFACT
    files = {
        layer["annotations"]["org.opencontainers.image.title"]: (
            layer["mediaType"],
            read_blob(layout, layer),
        )
        for layer in manifest["layers"]
    }
    assert files == {
        "README.md": (DOCUMENT, b"# A card"),
        "adapter_config.json": (SETTINGS, b"{}"),
        "adapter_model.safetensors": (WEIGHTS, b"weights"),
    }
    config = json.loads(read_blob(layout, manifest["config"]))
    assert config["modelfs"]["diffIds"] == [layer["digest"] for layer in manifest["layers"]]
    assert len([*(layout / "blobs" / "sha256").iterdir()]) == len(files) + 2
    assert not [*tmp_path.glob("*.part")]


def test_the_same_files_are_the_same_artifact(tmp_path: Path) -> None:
    folder = an_adapter(tmp_path / "adapter")
    digests = {
        json.loads(exported(folder, tmp_path / name, "--format", "oci", "--json").output)["digest"]
        for name in ("one", "two")
    }
    assert len(digests) == 1
    (folder / "adapter_model.safetensors").write_bytes(b"weighty")
    changed = exported(folder, tmp_path / "three", "--format", "oci", "--json")
    assert json.loads(changed.output)["digest"] not in digests


def test_an_artifact_needs_files_and_a_name_that_is_free(tmp_path: Path) -> None:
    empty = exported(tmp_path, tmp_path / "artifact", "--format", "oci")
    assert (empty.exit_code, "has no files" in empty.output) == (1, True)
    folder = an_adapter(tmp_path / "adapter")
    for kind in ("oci", "gguf"):
        refused = exported(folder, folder, "--format", kind, "--base", str(tmp_path))
        assert (refused.exit_code, "exists" in refused.output) == (1, True)


@pytest.mark.train
@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning")
def test_llama_cpp_answers_from_exported_files_as_transformers_does(tmp_path: Path) -> None:
    from services.engine.adapters.llama import LlamaEngine
    from services.engine.ports import WeightFiles
    from tests.unit.services.engine.adapters import tiny_models
    from tests.unit.services.engine.adapters.test_llama import GREEDY, said

    of_base, of_adapter = tiny_models.answers()
    adapter, base = tmp_path / "adapter", tiny_base().dir
    shutil.copytree(tiny_models.folder() / "adapter", adapter)
    (adapter / "lineage.json").write_text("{}")
    for kind in GGUF:
        done = exported(adapter, tmp_path / kind, "--format", kind, "--base", str(base))
        assert done.exit_code == 0, done.output
    assert {path.name for path in tmp_path.iterdir()} == {"adapter", *GGUF}, "and nothing else"
    engine = LlamaEngine(answers_max=2, context_tokens=256, threads=1)
    answers = []
    for model, lora in (("gguf", None), ("gguf-base", None), ("gguf-base", "gguf-adapter")):
        weights = None if lora is None else tmp_path / lora
        loaded = engine.load(WeightFiles(base, tmp_path / model, weights, 512))
        answers.append(said(loaded, GREEDY)[0])
        loaded.close()
    assert answers == [of_adapter, of_base, of_adapter]
    assert of_adapter != of_base


@pytest.mark.train
@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning")
def test_what_llama_cpp_does_not_compute_is_not_exported(tmp_path: Path) -> None:
    folder = an_adapter(tmp_path / "adapter")
    (folder / "adapter_config.json").write_text('{"use_dora": true}')
    target = tmp_path / "adapter.gguf"
    base = str(tiny_base().dir)
    refused = exported(folder, target, "--format", "gguf-adapter", "--base", base)
    assert (refused.exit_code, "use_dora" in refused.output, target.exists()) == (1, True, False)
