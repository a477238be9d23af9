"""JobSets that are of no lease go: of an earlier agent before the node registers, others later."""

from typing import Any

import pytest

from services.cluster.domain.manifests import AGENT, FLAVOR
from services.cluster.effect.sweeping import NodeNameTaken, OrphanWatch, Sweeper
from services.cluster.ports import ClusterUnavailable
from tests.unit.services.cluster.clusters import Links, MemoryCluster
from tests.virtual_time import on_virtual_time
from tunery.runtime.clock import SystemClock

URL = "https://agent:8443"
CLOCK = SystemClock()


def jobset(name: str, url: str = URL, flavor: str = "h100") -> dict[str, Any]:
    labels = {FLAVOR: flavor}
    return {"metadata": {"name": name, "annotations": {AGENT: url}, "labels": labels}}


@on_virtual_time
async def test_what_an_earlier_agent_left_is_removed() -> None:
    cluster = MemoryCluster()
    for name in ("t-default-1-aaaaaaaa", "t-default-2-aaaaaaaa"):
        await cluster.create(jobset(name), {}, {})
    assert await Sweeper(cluster, CLOCK, URL, "h100").sweep() == 2
    assert cluster.objects == {}
    # On the node of another flavor, whose agent has begun before, leases run.
    await cluster.create(jobset("t-default-4-cccccccc", flavor="a100"), {}, {})
    assert await Sweeper(cluster, CLOCK, URL, "h100").sweep() == 0
    cluster.keeps = True
    await cluster.create(jobset("t-default-3-aaaaaaaa"), {}, {})
    with pytest.raises(TimeoutError, match="t-default-3"):
        await Sweeper(cluster, CLOCK, URL, "h100").sweep()


@on_virtual_time
async def test_bad_input_leases_of_another_installation_under_this_name_are_left_alone() -> None:
    cluster = MemoryCluster()
    await cluster.create(jobset("t-default-1-bbbbbbbb", "https://other:8443"), {}, {})
    with pytest.raises(NodeNameTaken, match="https://other:8443: give each"):
        await Sweeper(cluster, CLOCK, URL, "h100").sweep()
    await OrphanWatch(cluster, Links(), CLOCK, URL).sweep()
    assert cluster.deleted == []


@on_virtual_time
async def test_what_comes_back_after_its_lease_ended_is_removed_and_what_lives_stays() -> None:
    cluster, links = MemoryCluster(), Links()
    links.links["t-default-1-aaaaaaaa"] = None  # type: ignore[assignment]  # nobody speaks
    for name in ("t-default-1-aaaaaaaa", "t-default-2-aaaaaaaa"):
        await cluster.create(jobset(name), {}, {})
    watch = OrphanWatch(cluster, links, CLOCK, URL)
    assert await watch.sweep() == 1
    assert list(cluster.objects) == ["t-default-1-aaaaaaaa"]
    cluster.failure = ClusterUnavailable("refused")
    with pytest.raises(ClusterUnavailable):
        await watch.sweep()
