"""The steps after the gateway is ready: what each answer of the gateway means."""

from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from tunery.local import initial_setup, settings
from tunery.local.errors import LocalError
from tunery.local.paths import DataDir
from tunery.local.secrets import load_or_create
from tunery.local.stack import Stack
from tunery.local.supervisor import Supervisor


@pytest.fixture
def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stack:
    monkeypatch.setenv("TUNERY_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(initial_setup, "PAUSE_MS", 1)
    ports = dict.fromkeys(("gateway", "kafka", "postgres", "valkey", "s3"), 1)
    keys = load_or_create(tmp_path / "secrets.json")
    where = settings.build(DataDir(tmp_path), ports, keys, {})
    return Stack(where, Supervisor(DataDir(tmp_path), lambda _event: None))


def client(answer: Callable[[httpx.Request], httpx.Response]) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.MockTransport(answer), base_url="http://gateway")


def always(status: int) -> httpx.AsyncClient:
    return client(lambda _request: httpx.Response(status, json={"error": "why"}))


@pytest.mark.parametrize(
    ("status", "line"), [(201, "tenant local created"), (409, "tenant local exists")]
)
async def test_the_tenant_is_created_once(running: Stack, status: int, line: str) -> None:
    assert await initial_setup.create_tenant(running, always(status)) == line


async def test_a_refused_tenant_ends_the_start(running: Stack) -> None:
    with pytest.raises(LocalError, match="the first tenant could not be created: 401"):
        await initial_setup.create_tenant(running, always(401))


async def test_setup_is_retried_while_the_gateway_is_not_ready(running: Stack) -> None:
    answers = [503, 503, 201]
    patient = client(lambda _request: httpx.Response(answers.pop(0)))
    assert await initial_setup.create_tenant(running, patient) == "tenant local created"
    assert answers == []


async def test_setup_retries_are_limited(running: Stack) -> None:
    with pytest.raises(LocalError, match=f"in {initial_setup.ATTEMPTS_MAX} tries: 503"):
        await initial_setup.create_tenant(running, always(503))


async def test_a_base_model_that_was_not_converted_is_named(running: Stack) -> None:
    line = await initial_setup.register_base(running, always(201))
    assert line.startswith("no base model in ")


async def test_a_base_model_is_registered_with_its_path(running: Stack, tmp_path: Path) -> None:
    folder = tmp_path / "cache" / "bases" / "smollm2-135m-instruct"
    folder.mkdir(parents=True)
    (folder / "model.safetensors").touch()
    bodies: list[bytes] = []

    def answer(request: httpx.Request) -> httpx.Response:
        bodies.append(request.content)
        return httpx.Response(201)

    line = await initial_setup.register_base(running, client(answer))
    assert line == "base model smollm2-135m-instruct registered"
    assert str(folder).encode() in bodies[0]
