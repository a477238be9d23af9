"""The hash of a base model covers what is trained on, and reads each file once."""

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tunery.platform.blobs import base_files
from tunery.platform.blobs.base_files import (
    default_cache,
    hash_base,
    matches,
    text_config,
    weight_files,
)
from tunery.platform.blobs.files import file_sha256


@pytest.fixture
def model_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "base"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"weights")
    (folder / "tokenizer.json").write_text("{}")
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    return folder


def rename(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "other.safetensors")


def change(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"Weights")


def change_template(folder: Path) -> None:
    (folder / "chat_template.jinja").write_text("{{ message }}")


def change_stops(folder: Path) -> None:
    (folder / "generation_config.json").write_text('{"eos_token_id": 1}')


@pytest.mark.parametrize("alter", [rename, change, change_template, change_stops])
def test_the_hash_covers_names_and_bytes(model_dir: Path, alter: Callable[[Path], None]) -> None:
    before = hash_base(model_dir)
    assert hash_base(model_dir) == before
    alter(model_dir)
    assert hash_base(model_dir) != before


@pytest.mark.parametrize(
    "name",
    [
        ".cache/huggingface/download/model.safetensors.metadata",
        "README.md",
        "original/consolidated.00.pth",
        "onnx/model.onnx",
    ],
)
def test_training_m13_files_of_a_download_tool_do_not_count(model_dir: Path, name: str) -> None:
    before = hash_base(model_dir)
    (model_dir / name).parent.mkdir(parents=True, exist_ok=True)
    (model_dir / name).write_text("1795316594.1")
    assert hash_base(model_dir) == before


def test_training_m13_a_base_that_was_added_with_all_its_files_still_matches(
    model_dir: Path,
) -> None:
    (model_dir / "README.md").write_text("read me")
    digest = hashlib.sha256()
    for path in sorted(model_dir.iterdir()):
        digest.update(f"{path.name}\0{file_sha256(path)}\n".encode())
    assert matches(model_dir, digest.hexdigest()) is None
    assert matches(model_dir, hash_base(model_dir)) is None
    assert matches(model_dir, "0" * 64) == hash_base(model_dir)


def test_training_m13_a_file_is_hashed_once_and_again_when_it_changes(
    model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []

    def count(path: Path) -> str:
        read.append(path.name)
        return file_sha256(path)

    monkeypatch.setattr(base_files, "file_sha256", count)
    cache = tmp_path / "cache" / "hashes.json"
    for path in model_dir.iterdir():
        os.utime(path, (1_000_000_000, 1_000_000_000))
    first = hash_base(model_dir, cache)
    assert (hash_base(model_dir, cache), len(read)) == (first, 4)
    change(model_dir)
    assert hash_base(model_dir, cache) == hash_base(model_dir) != first
    assert read.count("model.safetensors") == 3
    assert hash_base(model_dir, cache) != first
    assert read.count("model.safetensors") == 4, "a file that has just changed may change again"
    cache.write_bytes(b"damaged")
    assert hash_base(model_dir, cache) == hash_base(model_dir)


def test_a_cache_that_cannot_be_written_is_none(model_dir: Path, tmp_path: Path) -> None:
    for path in model_dir.iterdir():
        os.utime(path, (1_000_000_000, 1_000_000_000))
    (tmp_path / "file").write_text("")
    assert hash_base(model_dir, tmp_path / "file" / "hashes.json") == hash_base(model_dir)
    assert default_cache({"XDG_CACHE_HOME": "/c"}) == Path("/c/tunery/base-hashes.json")


def test_a_directory_that_is_no_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="has no config"):
        hash_base(tmp_path)


def test_weights_are_the_files_that_are_loaded(model_dir: Path) -> None:
    (model_dir / "consolidated.safetensors").write_bytes(b"the same weights in another format")
    assert [path.name for path in weight_files(model_dir)] == ["model.safetensors"]
    (model_dir / "model.safetensors").rename(model_dir / "model-1.safetensors")
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-1.safetensors"}}
    (model_dir / "model.safetensors.index.json").write_text(json.dumps(index))
    assert [path.name for path in weight_files(model_dir)] == ["model-1.safetensors"]


def test_training_m14_the_language_model_of_a_multi_modal_one() -> None:
    shell = {"model_type": "gemma3", "eos_token_id": 1, "text_config": {"hidden_size": 8}}
    assert text_config(shell)["hidden_size"] == 8
    assert text_config(shell)["eos_token_id"] == 1
    assert text_config({"hidden_size": 4}) == {"hidden_size": 4}
