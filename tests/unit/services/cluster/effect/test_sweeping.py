"""JobSets of an earlier agent go before the node registers."""

import pytest

from services.cluster.effect.sweeping import Sweeper
from tests.unit.services.cluster.clusters import MemoryCluster
from tests.virtual_time import on_virtual_time
from tunery.runtime.clock import SystemClock


@on_virtual_time
async def test_what_an_earlier_agent_left_is_removed() -> None:
    cluster = MemoryCluster()
    for name in ("t-default-1-aaaaaaaa", "t-default-2-aaaaaaaa"):
        await cluster.create({"metadata": {"name": name}}, {})
    assert await Sweeper(cluster, SystemClock()).sweep() == 2
    assert cluster.objects == {}
    cluster.keeps = True
    await cluster.create({"metadata": {"name": "t-default-3-aaaaaaaa"}}, {})
    with pytest.raises(TimeoutError, match="t-default-3"):
        await Sweeper(cluster, SystemClock()).sweep()
