"""The gateway's hosts, put together as in production, without servers."""

import hashlib

import pytest

from services.gateway.app import build
from tunery.platform.memory_servers import memory_servers


async def test_the_http_server_stops_before_what_its_routes_need(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TUNERY_ADMIN_KEY_SHA256", hashlib.sha256(b"admin").hexdigest())
    hosts = await build((await memory_servers()).runtime("gateway"))
    names = [type(host).__name__ for host in hosts]
    assert names[0] == "HttpServer"
    assert {"CommandResults", "Feeds", "Projector", "TopicReader", "EffectHost"} <= {*names}
