"""The service has two hosts."""

import pytest

from services.watcher.app import build
from tunery.platform.memory_servers import memory_servers
from tunery.platform.settings import SettingsError


async def test_the_service_watches_and_follows_the_ends_of_attempts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    servers = await memory_servers()
    assert [host.name for host in await build(servers.runtime("watcher"))] == [
        "watcher",
        "watcher reactions to job",
    ]
    monkeypatch.setenv("TUNERY_WATCHER_WINDOW_MS", "1")
    with pytest.raises(SettingsError):
        await build(servers.runtime("watcher"))
