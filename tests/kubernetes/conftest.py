"""The control plane, for all tests of a run; a team's queue, for each."""

import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest_asyncio
from lightkube import AsyncClient, KubeConfig
from lightkube.generic_resource import create_global_resource
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import Namespace, ServiceAccount
from lightkube.types import PatchType

from schemas.account import LANES
from services.cluster.adapters.kubernetes import (
    ClusterQueue,
    KubernetesCluster,
    LocalQueue,
    ResourceFlavor,
    Workload,
)
from tests.kubernetes.waiting import eventually
from tunery.local.kubernetes.cluster import KubernetesServers, control_plane
from tunery.local.kubernetes.programs import folder_of_programs

WorkloadPriorityClass = create_global_resource(
    "kueue.x-k8s.io", "v1beta2", "WorkloadPriorityClass", "workloadpriorityclasses"
)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def plane() -> AsyncIterator[KubernetesServers]:
    with tempfile.TemporaryDirectory(prefix="tunery-kubernetes-") as folder:
        async with control_plane(folder_of_programs(), Path(folder)) as running:
            client = AsyncClient(config=KubeConfig.from_file(running.kubeconfig), trust_env=False)
            try:
                for value, lane in enumerate(reversed(LANES)):
                    priority = WorkloadPriorityClass(
                        metadata=ObjectMeta(name=f"tunery-{lane}"), value=value, description=lane
                    )
                    await client.create(priority)
            finally:
                await client.close()
            yield running


@dataclass(frozen=True)
class Team:
    """A namespace with PodSecurity `restricted`, a queue and a flavor, all of one name."""

    client: AsyncClient
    name: str
    plane: KubernetesServers
    clusters: list[KubernetesCluster] = field(default_factory=list)

    async def set_quota(
        self, *, flavors: tuple[str, ...] = (), check: str = "", **quota: str
    ) -> None:
        """Set what the queue may use of each flavor: cpu, memory, gpu.

        check: name of an AdmissionCheck for all flavors
        """
        names = {"gpu": "nvidia.com/gpu"}
        resources = [
            {"name": names.get(name, name), "nominalQuota": amount}
            for name, amount in quota.items()
        ]
        group = {
            "coveredResources": [each["name"] for each in resources],
            "flavors": [{"name": name, "resources": resources} for name in flavors or (self.name,)],
        }
        spec: dict[str, Any] = {
            "namespaceSelector": {},
            "queueingStrategy": "BestEffortFIFO",
            "preemption": {"withinClusterQueue": "LowerPriority"},
            "resourceGroups": [group],
        }
        if check:
            spec["admissionChecksStrategy"] = {"admissionChecks": [{"name": check}]}
        queue = ClusterQueue(
            apiVersion="kueue.x-k8s.io/v1beta2",
            kind="ClusterQueue",
            metadata=ObjectMeta(name=self.name),
            spec=spec,
        )
        await self.client.apply(queue, field_manager="tests", force=True)

    async def evict(self) -> None:
        """Have Kueue evict everything in the queue, and admit it again."""
        await self.set_stop_policy("HoldAndDrain")
        await eventually("an eviction", self._has_evicted)
        await self.set_stop_policy("None")

    async def set_stop_policy(self, policy: str) -> None:
        await self.client.patch(
            ClusterQueue,
            self.name,
            {"spec": {"stopPolicy": policy}},
            patch_type=PatchType.MERGE,
        )

    async def close(self) -> None:
        """End the watches of all clusters so far."""
        for cluster in self.clusters:
            await cluster.close()

    async def _has_evicted(self) -> bool:
        return "True" in [
            condition["status"]
            async for workload in self.client.list(Workload)
            for condition in (workload.get("status") or {}).get("conditions", [])
            if condition["type"] == "Evicted"
        ]


@pytest_asyncio.fixture(loop_scope="session")
async def team(plane: KubernetesServers) -> AsyncIterator[Team]:
    """A team of its own for each test, with 4 CPUs and 8 GiB."""
    name = f"team-{uuid4().hex[:8]}"
    config = KubeConfig.from_file(plane.kubeconfig)
    client = AsyncClient(config=config, namespace=name, trust_env=False)
    own = Team(client, name, plane)
    try:
        yield await _prepared(own)
    finally:
        await own.close()
        await client.close()


async def _prepared(team: Team) -> Team:
    """Make the objects of a team."""
    client, name = team.client, team.name
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    await client.create(Namespace(metadata=ObjectMeta(name=name, labels=labels)))
    await client.create(
        ResourceFlavor(
            metadata=ObjectMeta(name=name), spec={"nodeLabels": {"tunery.dev/flavor": name}}
        )
    )
    await team.set_quota(cpu="4", memory="8Gi")
    await client.create(
        LocalQueue(metadata=ObjectMeta(name="tunery", namespace=name), spec={"clusterQueue": name})
    )

    async def has_account() -> bool:
        return "default" in [each.metadata.name async for each in client.list(ServiceAccount)]

    await eventually("service account", has_account)
    return team
