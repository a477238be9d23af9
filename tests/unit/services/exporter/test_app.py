"""The service has one host."""

import pytest

from services.exporter.app import build
from tunery.platform.memory_servers import memory_servers
from tunery.platform.settings import SettingsError


async def test_the_service_is_one_host(monkeypatch: pytest.MonkeyPatch) -> None:
    servers = await memory_servers()
    monkeypatch.setenv("TUNERY_EXPORTER_EVERY_MS", "100")
    assert [host.name for host in await build(servers.runtime("exporter"))] == ["exporter"]
    monkeypatch.setenv("TUNERY_EXPORTER_EVERY_MS", "1")
    with pytest.raises(SettingsError):
        await build(servers.runtime("exporter"))
