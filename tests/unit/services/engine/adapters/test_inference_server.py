"""Requests to vLLM and SGLang over HTTP, and their responses."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

from services.engine.adapters.inference_server import (
    ServerAway,
    ServerRefused,
    SglangServer,
    VllmServer,
)
from tests.inference_server import Events, InferenceServer, serving
from tests.unit.services.ingest.base import make_base
from tunery.work.answers import TokensEnded, TokenWritten

Kind = Literal["vllm", "sglang"]
CLIENTS = {"vllm": VllmServer, "sglang": SglangServer}
BODY = {"prompt": [5, 6], "max_tokens": 4, "stream": True}


def three_tokens(_: Path | None, body: dict[str, Any]) -> Events:
    for token in (40, 41, 42):
        yield TokenWritten(0, token, -0.5, ((40, -0.5), (41, -1.5)))
    yield TokensEnded(0, "length", 3)


def adapter_folder(folder: Path, rank: int = 4) -> Path:
    folder.mkdir()
    (folder / "adapter_model.safetensors").write_bytes(b"")
    (folder / "adapter_config.json").write_text(f'{{"r": {rank}}}')
    return folder


@pytest.fixture(params=CLIENTS)
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[InferenceServer]:
    base = make_base(tmp_path / "base")
    with serving(InferenceServer(base, three_tokens, request.param, key="k")) as running:
        yield running


def client_of(server: InferenceServer, key: str | None = "k") -> VllmServer:
    return CLIENTS[server.kind](server.url, key)


def test_adapters_come_and_go(server: InferenceServer, tmp_path: Path) -> None:
    client = client_of(server)
    folder = str(adapter_folder(tmp_path / "a"))
    client.load("tunery-a", folder)
    models = client.models()
    assert (models.folder, models.context_length) == (str(server.base), 512)
    assert models.adapters == {"tunery-a": folder}
    client.unload("tunery-a")
    assert client.models().adapters == {}


def test_what_a_server_refuses_has_its_words(server: InferenceServer, tmp_path: Path) -> None:
    client = client_of(server)
    with pytest.raises(ServerRefused) as refused:
        client.load("tunery-b", str(adapter_folder(tmp_path / "b", rank=64)))
    assert "rank 64 is greater" in refused.value.message
    with pytest.raises(ServerRefused):
        client.unload("tunery-b")
    with pytest.raises(ServerRefused) as refused:
        client_of(server, key=None).models()
    assert refused.value.status == 401


def test_the_tokens_of_an_answer_come_in_parts(server: InferenceServer, tmp_path: Path) -> None:
    client = client_of(server)
    client.load("tunery-a", str(adapter_folder(tmp_path / "a")))
    for adapter in (None, "tunery-a"):
        fields = client.model_fields(client.models(), adapter)
        with client.completion({**fields, **BODY}) as chunks:
            parts = list(chunks)
        assert [choice.token_ids for part in parts for choice in part.choices] == [[40], [41], [42]]
        assert [part.cached_tokens for part in parts] == [0, 0, 0, 1]
    with (
        pytest.raises(ServerRefused) as refused,
        client.completion({**fields, **BODY, "prompt": [1] * 600}),
    ):
        pass
    assert refused.value.status == 400


def test_a_server_that_is_away_or_says_something_else(tmp_path: Path) -> None:
    server = InferenceServer(make_base(tmp_path / "base"), three_tokens)
    with serving(server):
        client = client_of(server, None)
        strange = VllmServer(f"{server.url}/v1/load_lora_adapter/..")
        with pytest.raises(ServerRefused):
            strange.models()
    for ask in (client.models, lambda: client.load("a", "/a")):
        with pytest.raises(ServerAway):
            ask()
    with pytest.raises(ServerAway), client.completion(BODY):
        pass
