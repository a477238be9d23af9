"""Errors of an agent that cannot start."""

import asyncio
import json
from pathlib import Path

import pytest
import yaml

from services.cluster.app import QUOTA_MS, QuotaReader, build
from services.cluster.ports import ClusterUnavailable
from tests.unit.services.cluster.clusters import MemoryCluster
from tests.virtual_time import on_virtual_time
from tunery.platform.memory_servers import memory_servers
from tunery.platform.settings import SettingsError
from tunery.runtime.clock import SystemClock

SETTINGS = {
    "QUEUE": "tunery",
    "FLAVORS": json.dumps({"h100": {"device_memory_bytes": 80 << 30}}),
    "IMAGE": "tunery:1",
    "POD_HOST": "agent.tunery.svc",
}


@pytest.fixture(autouse=True)
def settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    content = {
        "current-context": "a",
        "clusters": [{"name": "a", "cluster": {"server": "http://127.0.0.1:1"}}],
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        "users": [{"name": "a", "user": {"token": "token"}}],
    }
    kubeconfig.write_text(yaml.safe_dump(content))
    for name, value in {**SETTINGS, "KUBECONFIG": str(kubeconfig)}.items():
        monkeypatch.setenv(f"TUNERY_CLUSTER_{name}", value)


async def test_a_setting_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TUNERY_CLUSTER_QUEUE")
    with pytest.raises(SettingsError, match="TUNERY_CLUSTER_QUEUE"):
        await build((await memory_servers()).runtime("trainer"))


async def test_a_cluster_that_does_not_answer_is_named() -> None:
    with pytest.raises(SettingsError, match="LocalQueue tunery and the leases in the namespace"):
        await build((await memory_servers()).runtime("trainer"))


async def test_outside_of_a_cluster_it_says_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TUNERY_CLUSTER_KUBECONFIG")
    with pytest.raises(SettingsError, match="there is no way to the cluster"):
        await build((await memory_servers()).runtime("trainer"))


@on_virtual_time
async def test_the_quota_is_read_again_but_not_at_each_look() -> None:
    cluster = MemoryCluster(slots=4)
    quota = QuotaReader(cluster, SystemClock(), await cluster.quota("h100", 1), 1)
    cluster.slots = 100
    assert await quota.slots() is None
    await asyncio.sleep(QUOTA_MS / 1_000)
    assert await quota.slots() == 64, "a node has no more"
    cluster.slots = 0
    await asyncio.sleep(QUOTA_MS / 1_000)
    cluster.failure = ClusterUnavailable("connection refused")
    assert await quota.slots() is None, "silence is no quota of nothing"
    cluster.failure = None
    await asyncio.sleep(QUOTA_MS / 1_000)
    assert await quota.slots() == 0
