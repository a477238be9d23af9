"""The composition root of the node agent: its settings decide where leases work."""

from dataclasses import replace
from pathlib import Path

import pytest

from services.trainer.adapters.forks import WorkForks
from services.trainer.adapters.leased import LeaseProcesses
from services.trainer.app import LEASES, build
from services.trainer.effect.agent import NodeAgent
from services.trainer.effect.replica_answers import ReplicaAnswers
from tests.unit.services.trainer.adapters.eight_devices import EightDevices
from tunery.platform.bus.sender_keys import keys_of
from tunery.platform.memory_servers import memory_servers
from tunery.platform.settings import SettingsError


async def test_one_agent_is_built_from_the_settings(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TUNERY_NODE_ID", "a")
    monkeypatch.setenv("TUNERY_NODE_WORK_DIR", str(tmp_path))
    runtime = (await memory_servers()).runtime("trainer")
    agent, answers = await build(runtime)
    assert isinstance(agent, NodeAgent)
    assert isinstance(answers, ReplicaAnswers)


async def test_security_l4_the_folders_of_a_node_are_its_owners(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TUNERY_NODE_ID", "a")
    monkeypatch.setenv("TUNERY_NODE_WORK_DIR", str(tmp_path / "a"))
    (tmp_path / "a" / LEASES).mkdir(mode=0o755, parents=True)
    await build((await memory_servers()).runtime("trainer"))
    for folder in (tmp_path / "a", tmp_path / "a" / LEASES):
        assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(("asked", "loads"), [("true", True), ("false", False), ("", False)])
async def test_first_hour2_u15_libraries_are_loaded_before_the_first_lease_where_that_is_asked_for(
    asked: str, loads: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The first job on a new stack started Python, and was "queued" for half a minute."""
    if asked:
        monkeypatch.setenv("TUNERY_NODE_WARM", asked)
    monkeypatch.setenv("TUNERY_NODE_WORK_DIR", str(tmp_path))
    agent, _ = await build((await memory_servers()).runtime("trainer"))
    assert isinstance(agent, NodeAgent)
    assert isinstance(agent._sweeper, LeaseProcesses)
    prepared: list[bool] = []
    monkeypatch.setattr(WorkForks, "prepare", lambda _: prepared.append(True))
    await agent._sweeper.sweep()
    assert prepared == [True] * loads


async def test_a_wrong_setting_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNERY_NODE_SLOTS", "many")
    with pytest.raises(SettingsError, match="SLOTS"):
        await build((await memory_servers()).runtime("trainer"))


@pytest.mark.parametrize(("slots", "starts"), [(2, True), (3, False)])
async def test_bad_input_a_node_with_fewer_gpus_than_slots_does_not_start(
    slots: int, starts: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    EightDevices(count=2).install(monkeypatch)
    monkeypatch.setenv("TUNERY_NODE_SLOTS", str(slots))
    monkeypatch.setenv("TUNERY_NODE_WORK_DIR", str(tmp_path))
    runtime = (await memory_servers()).runtime("trainer")
    if starts:
        assert len(await build(runtime)) == 2
        return
    with pytest.raises(SettingsError, match="driver knows 2 accelerators"):
        await build(runtime)


async def test_security_c2_an_agent_with_the_keys_of_another_node_does_not_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TUNERY_NODE_ID", "a")
    monkeypatch.setenv("TUNERY_NODE_WORK_DIR", str(tmp_path))
    runtime = (await memory_servers()).runtime("trainer")
    secret = b"s" * 32
    assert await build(replace(runtime, keys=keys_of(secret, "node.a")))
    with pytest.raises(SettingsError, match=r"is of node\.b, and this is the node a"):
        await build(replace(runtime, keys=keys_of(secret, "node.b")))


@pytest.mark.parametrize(("slots", "offered"), [("", 8), ("4", 4)])
async def test_devices_are_a_slot_each_where_none_are_set(
    slots: str, offered: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A node with eight offered one slot, so seven of them were never used."""
    EightDevices().install(monkeypatch)
    if slots:
        monkeypatch.setenv("TUNERY_NODE_SLOTS", slots)
    monkeypatch.setenv("TUNERY_NODE_WORK_DIR", str(tmp_path))
    agent, _ = await build((await memory_servers()).runtime("trainer"))
    assert isinstance(agent, NodeAgent)
    assert agent._settings.slots == offered
