"""The composition root: one host, with its socket where the gateway looks for it."""

from services.engine.app import build
from services.engine.host import EngineHost
from tunery.runtime.memory_servers import memory_servers


async def test_one_host_answers() -> None:
    runtime = (await memory_servers()).runtime("engine")
    (host,) = await build(runtime)
    assert isinstance(host, EngineHost)
    assert host.name == "engine"
