"""Folders that a server calls otherwise, and base models that are those of their hash."""

from pathlib import Path

from services.engine.adapters.server_folders import ServerFolders
from tests.unit.services.engine.adapters.test_weights import base_folder
from tunery.platform.blobs.base_files import hash_base


def test_names_are_translated_both_ways() -> None:
    folders = ServerFolders(Path("/data/engine/vllm"), {"/data": "/mnt/tunery"})
    adapter = Path("/data/engine/vllm/ab.adapter")
    assert folders.at_server(adapter) == "/mnt/tunery/engine/vllm/ab.adapter"
    assert folders.here("/mnt/tunery/engine/vllm/ab.adapter") == adapter
    assert folders.is_ours("/mnt/tunery/engine/vllm/ab.adapter")
    assert not folders.is_ours("/mnt/other/ab.adapter")
    assert folders.at_server(Path("/elsewhere")) == "/elsewhere"


def test_a_base_model_is_known_by_its_hash_wherever_it_lies(tmp_path: Path) -> None:
    base = base_folder(tmp_path / "base")
    folders, sha256 = ServerFolders(tmp_path, {}), hash_base(base)
    assert folders.holds(str(base), sha256)
    assert not folders.holds(str(base), "ab" * 32)
    assert not folders.holds("org/name-on-a-hub", sha256)
    (base / "config.json").write_text('{"changed": true}')
    assert not folders.holds(str(base), sha256)
