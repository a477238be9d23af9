"""Leases of an agent on the real control plane, whose pods run a stand-in for their program."""

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from lightkube import AsyncClient
from lightkube.resources.core_v1 import Pod, Secret
from lightkube.resources.networking_v1 import NetworkPolicy
from msgspec.structs import replace as changed

from schemas.pool import ConfirmFreed, ReportExit
from services.cluster.adapters.kubernetes import JobSet, KubernetesCluster
from services.cluster.domain.manifests import Flavor, PodTemplate
from services.cluster.effect.lease import ClusterLease, LeaseTools
from tests.kubernetes.conftest import Team
from tests.kubernetes.waiting import eventually
from tests.unit.services.cluster.clusters import Links, PlainSigner, Reported
from tests.unit.services.trainer.domain.test_evolve import grant
from tunery.local.kubernetes.kubelet import Kubelet, kubelet
from tunery.runtime.clock import SystemClock

SLEEPS: Final = (sys.executable, "-c", "import time; time.sleep(3600)")
CAPACITY: Final = {"cpu": "64", "memory": "64Gi"}
MIB: Final = 1 << 20
NODE: Final = grant().node_id
AGENT_URL: Final = "https://127.0.0.1:1"


def template_of(**changes: Any) -> PodTemplate:
    template = PodTemplate(
        image="tunery:1",
        queue="tunery",
        agent_url=AGENT_URL,
        resource="cpu",
        cpus_per_slot=1,
        memory_per_slot_bytes=256 * MIB,
        grace_s=5,
    )
    return replace(template, **changes)


@dataclass
class Leases:
    """Leases of one agent in a team's namespace."""

    team: Team
    cluster: KubernetesCluster
    reports: Reported
    links: Links
    tasks: list[asyncio.Task[None]]
    flavor: Flavor | None = None

    async def start(self, number: int = 1, slots: int = 1, **changes: Any) -> ClusterLease:
        """Run a lease. changes: of the pod template, `wait_ms_max`, `stuck_ms_max`."""
        own = grant(slots)
        if self.flavor is None:
            self.flavor = (await self.cluster.quota(self.team.name, 1)).flavor
        token = changed(own.token, lease=number)
        own = changed(own, lease=changed(own.lease, token=token))
        wait_ms_max = changes.pop("wait_ms_max", 600_000)
        stuck_ms_max = changes.pop("stuck_ms_max", 600_000)
        tools = LeaseTools(
            cluster=self.cluster,
            server=self.links,
            signer=PlainSigner(),
            reports=self.reports,
            clock=SystemClock(),
            template=template_of(**changes),
            flavor=self.flavor,
            incarnation="a1" * 16,
            encrypts=True,
            wait_ms_max=wait_ms_max,
            stuck_ms_max=stuck_ms_max,
            poll_ms=300,
        )
        lease = ClusterLease(own, tools)
        self.tasks.append(asyncio.create_task(lease.run()))
        return lease

    async def stage(self, lease: ClusterLease, kind: type[Any]) -> Any:
        """Wait until the lease is in a stage of this kind, which is returned."""

        async def reached() -> Any:
            return lease.stage if isinstance(lease.stage, kind) else None

        return await eventually(f"{lease.name} is {kind.__name__}", reached)

    @property
    def exits(self) -> list[ReportExit]:
        """Ends of leases so far, as they were reported."""
        return [each for each in self.reports.facts if isinstance(each, ReportExit)]

    async def end(self) -> ReportExit:
        """How the last lease ended; nothing of it is left in the cluster."""
        await asyncio.wait_for(self.tasks[-1], 300)
        (said,) = self.exits
        assert isinstance(self.reports.facts[-1], ConfirmFreed)
        client = self.team.client
        assert [pod async for pod in client.list(Pod)] == []
        assert [each async for each in client.list(JobSet)] == []

        async def owns_nothing() -> bool:
            kinds = (Secret, NetworkPolicy)
            return not [each for kind in kinds async for each in client.list(kind)]

        await eventually("Secret and NetworkPolicy are gone with their JobSet", owns_nothing)
        return said


def cluster_of(
    team: Team, client: AsyncClient | None = None, *, agent: str = NODE, queue: str = "tunery"
) -> KubernetesCluster:
    """The cluster as an agent sees it. client: with rights of its own."""
    team.clusters.append(KubernetesCluster(client or team.client, agent, queue, resource="cpu"))
    return team.clusters[-1]


@asynccontextmanager
async def leases(team: Team) -> AsyncIterator[Leases]:
    own = Leases(team, cluster_of(team), Reported(), Links(), [])
    try:
        yield own
    finally:
        for task in own.tasks:
            task.cancel()
        await asyncio.gather(*own.tasks, return_exceptions=True)


@asynccontextmanager
async def node_of(team: Team, folder: Path, command: Sequence[str]) -> AsyncIterator[Kubelet]:
    labels = {"tunery.dev/flavor": team.name}
    async with kubelet(team.client, team.name, folder, labels, CAPACITY, command) as node:
        yield node


async def pod_of(team: Team) -> Any:
    """The only pod, once there is one."""

    async def first() -> Any:
        return next(iter([pod async for pod in team.client.list(Pod)]), None)

    return await eventually("a pod", first)
