"""Base models by name: what is fetched, how it is checked, and what is said when it fails."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.hub_server import COMMIT, HubServer, serving
from tests.unit.services.gateway.models.test_base_folders import a_base
from tunery.local.errors import LocalError
from tunery.local.hub import Hub, split_name
from tunery.platform.blobs.base_files import hash_base

NAME: Final = "org/Smol-1B"


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[HubServer]:
    folder = a_base(tmp_path / "origin")
    (folder / "pytorch_model.bin").write_bytes(b"pickle")
    (folder / "modeling_smol.py").write_text("print()")
    (folder / "onnx").mkdir()
    (folder / "onnx" / "model.safetensors").write_bytes(b"other")
    with serving(HubServer({NAME: folder})) as hub:
        yield hub


def fetched(hub: HubServer, folder: Path, revision: str = "main") -> int:
    """Download the model into a folder; how many bytes came."""
    counts: list[int] = []
    client = Hub(hub.environ)
    client.download(client.model(NAME, revision), folder, counts.append)
    return sum(counts)


@pytest.mark.parametrize("revision", ["main", "v1", COMMIT])
def test_first_hour_s03_what_is_read_is_fetched_and_nothing_else(
    hub: HubServer, revision: str, tmp_path: Path
) -> None:
    model = Hub(hub.environ).model(NAME, revision)
    assert (model.commit, model.licence) == (COMMIT, "apache-2.0")
    assert fetched(hub, tmp_path / "copy", revision) == model.bytes
    names = sorted(path.name for path in (tmp_path / "copy").iterdir())
    assert names == ["config.json", "model.safetensors", "tokenizer.json"]
    assert hash_base(tmp_path / "copy") == hash_base(hub.models[NAME])


def test_first_hour_s03_complete_files_are_not_fetched_again(
    hub: HubServer, tmp_path: Path
) -> None:
    fetched(hub, tmp_path / "copy")
    (tmp_path / "copy" / "config.json").write_text("{}")
    hub.requests.clear()
    fetched(hub, tmp_path / "copy")
    assert [path for path in hub.requests if "/resolve/" in path] == [
        f"/{NAME}/resolve/{COMMIT}/config.json"
    ]
    assert hash_base(tmp_path / "copy") == hash_base(hub.models[NAME])


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_first_hour_s03_other_bytes_than_the_hub_names_are_refused(
    hub: HubServer, name: str, tmp_path: Path
) -> None:
    hub.damaged = {name}
    with pytest.raises(LocalError, match=f"{name} of {NAME} came with the wrong bytes"):
        fetched(hub, tmp_path / "copy")
    assert not (tmp_path / "copy" / name).exists()
    assert not list((tmp_path / "copy").glob("*.part"))


def test_first_hour_s03_each_failure_names_its_fix(hub: HubServer, tmp_path: Path) -> None:
    cases = {
        ("org/other", "main"): "has no org/other@main",
        (NAME, "v9"): f"has no {NAME}@v9",
        ("../etc", "main"): "is no name of a model",
    }
    for (name, revision), message in cases.items():
        with pytest.raises(LocalError, match=message):
            Hub(hub.environ).model(name, revision)
    (hub.models[NAME] / "model.safetensors").unlink()
    with pytest.raises(LocalError, match=r"no \*\.safetensors"):
        Hub(hub.environ).model(NAME)
    with pytest.raises(LocalError, match="does not answer"):
        Hub({"HF_ENDPOINT": "http://127.0.0.1:9"}).model(NAME)


def test_first_hour_s03_a_token_opens_what_asks_for_consent(hub: HubServer) -> None:
    hub.token = "hf_x"
    with pytest.raises(LocalError, match="set HF_TOKEN"):
        Hub(hub.environ).model(NAME)
    assert Hub({**hub.environ, "HF_TOKEN": "hf_x"}).model(NAME).commit == COMMIT


def test_first_hour_s03_shards_come_with_their_index(tmp_path: Path) -> None:
    folder = a_base(tmp_path / "origin")
    (folder / "model.safetensors").rename(folder / "model-00001-of-00001.safetensors")
    index = '{"weight_map": {"a": "model-00001-of-00001.safetensors"}}'
    (folder / "model.safetensors.index.json").write_text(index)
    with serving(HubServer({NAME: folder})) as hub:
        fetched(hub, tmp_path / "copy")
    assert hash_base(tmp_path / "copy") == hash_base(folder)


def test_a_name_may_end_with_a_revision() -> None:
    assert split_name("org/x") == ("org/x", "main")
    assert split_name("org/x@v1") == ("org/x", "v1")
