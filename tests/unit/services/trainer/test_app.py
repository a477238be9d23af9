"""The composition root of the node agent: its settings decide where leases work."""

from pathlib import Path

import pytest

from services.trainer.app import build
from services.trainer.effect.agent import NodeAgent
from tunery.runtime.memory_servers import memory_servers
from tunery.runtime.settings import SettingsError


async def test_one_agent_is_built_from_the_settings(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TUNERY_NODE_ID", "a")
    monkeypatch.setenv("TUNERY_NODE_WORK_DIR", str(tmp_path))
    runtime = (await memory_servers()).runtime("trainer")
    (agent,) = await build(runtime)
    assert isinstance(agent, NodeAgent)


async def test_a_wrong_setting_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNERY_NODE_SLOTS", "many")
    with pytest.raises(SettingsError, match="SLOTS"):
        await build((await memory_servers()).runtime("trainer"))
