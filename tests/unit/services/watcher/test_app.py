"""The service has one host."""

import pytest

from services.watcher.app import build
from tunery.runtime.memory_servers import memory_servers
from tunery.runtime.settings import SettingsError


async def test_the_service_is_one_host(monkeypatch: pytest.MonkeyPatch) -> None:
    servers = await memory_servers()
    assert [host.name for host in await build(servers.runtime("watcher"))] == ["watcher"]
    monkeypatch.setenv("TUNERY_WATCHER_WINDOW_MS", "1")
    with pytest.raises(SettingsError):
        await build(servers.runtime("watcher"))
